"""Helm, which renders and installs the chart of examples/kubernetes/chart: `make kubernetes` builds it from Go modules.

It lies beside the control plane (control_plane.py), unless one is installed. House rule: nothing here knows the chart.
"""

from __future__ import annotations

import os
import shutil
import subprocess

from tests.kubernetes.control_plane import cache

RELEASE = "v3.22.0"
MISSING = "no Helm is here (`make kubernetes` builds one with Go, in 5 minutes)"
FOLDER = cache() / f"helm-{RELEASE}"


def program() -> str | None:
    """The path of Helm; None if there is none."""
    return shutil.which("helm") or shutil.which("helm", path=str(FOLDER))


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Helm to its end."""
    found = program()
    assert found is not None, MISSING
    return subprocess.run([found, *arguments], capture_output=True, text=True, check=False)


def build() -> None:
    """Build it, unless one is there."""
    if program() is None:
        command = ["go", "install", f"helm.sh/helm/v3/cmd/helm@{RELEASE}"]
        subprocess.run(command, env={**os.environ, "GOBIN": str(FOLDER)}, check=True)
    print(program())
