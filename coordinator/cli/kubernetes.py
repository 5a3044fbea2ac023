"""The options and texts that commands beside Kubernetes have in common: `tenure seats` and `tenure seat run`.

House rule: this module knows of Kubernetes only where its API server is, and what this program needs for it.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, NoReturn

from coordinator.cli.exit_codes import ExitCode, fail
from coordinator.cli.options import option
from coordinator.text import printable

OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
"""A pod's own namespace, as Kubernetes writes it."""

Kubeconfig = Annotated[
    Path | None, option("--kubeconfig", "FILE", "How to reach Kubernetes; in a pod its service account does.")
]


def check_kubeconfig(kubeconfig: Path | None) -> None:
    """End the command if there is no such file."""
    if kubeconfig is not None and not kubeconfig.is_file():
        fail(ExitCode.USAGE, f"--kubeconfig: there is no file {kubeconfig}")


def fail_without_extra(error: ImportError) -> NoReturn:
    """End the command: the client for Kubernetes, or a part of it, isn't installed."""
    hint = "`pip install 'tenure[kubernetes]'` installs it, and so does `make install-kubernetes` in a clone"
    fail(ExitCode.USAGE, f"{error.name} is missing: {hint}")


def own_namespace() -> str:
    """The namespace of the pod that this runs in; elsewhere Kubernetes's default."""
    return OWN_NAMESPACE.read_text() if OWN_NAMESPACE.exists() else "default"


def say(text: str) -> None:
    """Print a line with its time."""
    print(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}Z  {printable(text)}", file=sys.stderr, flush=True)
