"""The install says at once which package it fetches or builds, and nothing if nothing is to be done."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from hashlib import sha256
from pathlib import Path

import pytest

from requirements.install import progress

ROOT = Path(__file__).resolve().parents[2]

OLD_PIP = """\
Collecting annotated-doc==0.0.7
  Downloading annotated_doc-0.0.7-py3-none-any.whl (5.3 kB)
Collecting crc32c==2.9.post0
  Downloading https://mirror.example/a-b/1.0/crc32c-2.9.post0-cp311-cp311-manylinux_2_5_x86_64.whl (80 kB)
Collecting pyspark==4.0.0
  Using cached pyspark-4.0.0.tar.gz (434.2 MB)
  Preparing metadata (pyproject.toml): started
  Preparing metadata (pyproject.toml): finished with status 'done'
Requirement already satisfied: rich==15.0.0 in ./lib (from -r run.txt (line 442)) (15.0.0)
Building wheels for collected packages: pyspark
  Building wheel for pyspark (pyproject.toml): started
  Building wheel for pyspark (pyproject.toml): still running...
  Building wheel for pyspark (pyproject.toml): finished with status 'done'
  Created wheel for pyspark: filename=pyspark-4.0.0-py2.py3-none-any.whl size=1 sha256=00
Installing collected packages: annotated-doc, crc32c, pyspark
Successfully installed annotated-doc-0.0.7 crc32c-2.9.post0 pyspark-4.0.0
"""
NEW_PIP = """\
Collecting annotated-doc==0.0.7 (from -r requirements/run.txt (line 7))
  Downloading annotated_doc-0.0.7-py3-none-any.whl.metadata (6.6 kB)
Processing ./wheels/crc32c-2.9.post0-cp311-cp311-manylinux_2_5_x86_64.whl (from -r requirements/run.txt (line 9))
Downloading annotated_doc-0.0.7-py3-none-any.whl (5.3 kB)
Installing collected packages: annotated-doc
"""


def test_each_package_has_a_line() -> None:
    """One line each, with its size, from the words of old and new versions of pip, and wherever it comes from."""
    assert list(progress(OLD_PIP.splitlines())) == [
        "  downloading annotated_doc 0.0.7 (5.3 kB)",
        "  downloading crc32c 2.9.post0 (80 kB)",
        "  taking pyspark 4.0.0 (434.2 MB)",
        "  building pyspark",
        "  installing 3 packages",
    ]
    assert list(progress(NEW_PIP.splitlines())) == [
        "  taking crc32c 2.9.post0",
        "  downloading annotated_doc 0.0.7 (5.3 kB)",
        "  installing 1 package",
    ]


def install(lock: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the program with this lock, without any index."""
    command = [sys.executable, str(ROOT / "requirements" / "install.py"), str(lock), "--no-index", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.long
def test_the_real_pip_is_read(tmp_path: Path) -> None:
    """The pip of this machine installs a package with one line for it; a wrong hash is pip's error and exit code."""
    wheel = tmp_path / "nothing_much-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(
            "nothing_much-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: nothing-much\nVersion: 1.0\n"
        )
        archive.writestr(
            "nothing_much-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("nothing_much-1.0.dist-info/RECORD", "")
    lock = tmp_path / "lock.txt"
    options = ("--find-links", str(tmp_path), "--target", str(tmp_path / "here"))
    lock.write_text(f"nothing-much==1.0 --hash=sha256:{sha256(wheel.read_bytes()).hexdigest()}\n")
    done = install(lock, *options)
    assert (done.returncode, done.stdout) == (0, "  taking nothing_much 1.0\n  installing 1 package\n"), done.stderr
    lock.write_text(f"nothing-much==1.0 --hash=sha256:{'0' * 64}\n")
    done = install(lock, *options)
    assert done.returncode == 1
    assert "DO NOT MATCH THE HASHES" in done.stderr


@pytest.mark.long
def test_nothing_is_printed_if_nothing_is_to_be_done(tmp_path: Path) -> None:
    """A lock whose packages are all there prints nothing."""
    lock = tmp_path / "lock.txt"
    lock.touch()
    done = install(lock)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert list(progress(["Requirement already satisfied: rich==15.0.0 in ./lib (15.0.0)"])) == []
