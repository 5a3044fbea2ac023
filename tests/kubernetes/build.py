"""Builds the programs of this folder's tests: `make kubernetes`."""

from __future__ import annotations

import shutil
import sys

from tests.kubernetes import control_plane, helm

if __name__ == "__main__":
    if shutil.which("go") is None:
        sys.exit("make kubernetes: install Go (https://go.dev/dl)")
    control_plane.build()
    helm.build()
