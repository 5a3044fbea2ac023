"""A virtual environment of its own for a suite whose packages aren't among ours.

It is made once for each lock, from that lock alone, in the folder of builds.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from tests.interop.client import build_folder, run_build


def environment(lock: Path) -> Path:
    """Return the Python of an environment with the packages of this lock."""
    with build_folder(lock.stem) as folder:
        python = folder / "venv" / "bin" / "python"
        stamp = folder / "installed"
        if not stamp.exists() or stamp.read_bytes() != lock.read_bytes():
            stamp.unlink(missing_ok=True)
            shutil.rmtree(folder / "venv", ignore_errors=True)
            run_build([sys.executable, "-m", "venv", str(folder / "venv")], folder)
            pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--quiet"]
            run_build([*pip, "--require-hashes", "--only-binary", ":all:", "--requirement", str(lock)], folder)
            stamp.write_bytes(lock.read_bytes())
    return python
