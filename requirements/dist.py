"""Builds the sdist, and from it the wheel, into dist/.

    python requirements/dist.py

A frontend such as `build` calls the same two functions of setuptools, in the same order. This program needs no
frontend: setuptools is locked and installed already.

setuptools leaves folders in the tree that it builds, and takes files from such folders of an earlier build. So this
program builds a copy of the tree.

House rule: what is in the archives is decided by pyproject.toml and MANIFEST.in alone.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MADE = {"build", "data", "dist", "found"}
"""Folders of the root that other programs made; those with a dot in front are theirs too."""

SDIST = "build_meta.build_sdist"
WHEEL = "build_meta.build_wheel"


def build(hook: str, source: Path, into: Path) -> Path:
    """Call a hook of setuptools (SDIST or WHEEL) in the folder `source`; return the path of the archive."""
    into.mkdir(parents=True, exist_ok=True)
    code = f"import sys; from setuptools import build_meta; print('\\n' + {hook}(sys.argv[1]))"
    command = [sys.executable, "-c", code, str(into.resolve())]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{hook}:\n{done.stdout}{done.stderr}")
    return into / done.stdout.splitlines()[-1]


def unpack(sdist: Path, into: Path) -> Path:
    """Unpack an sdist and return its only folder."""
    shutil.unpack_archive(sdist, into)
    (folder,) = into.iterdir()
    return folder


def copy_tree(into: Path) -> None:
    """Copy the tree as a fresh clone has it."""

    def left_out(folder: str, names: list[str]) -> set[str]:
        made = {name for name in names if name == "__pycache__" or name.endswith(".egg-info")}
        if Path(folder) == ROOT:
            made |= {name for name in names if name in MADE or name.startswith(".")}
        return made

    shutil.copytree(ROOT, into, ignore=left_out)


def main() -> int:
    """Empty dist/ and build both; returns the exit code."""
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    with tempfile.TemporaryDirectory() as temporary:
        copy_tree(Path(temporary, "tree"))
        sdist = build(SDIST, Path(temporary, "tree"), dist)
        wheel = build(WHEEL, unpack(sdist, Path(temporary, "sdist")), dist)
    for archive in (sdist, wheel):
        print(f"{archive.relative_to(ROOT)}: {archive.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
