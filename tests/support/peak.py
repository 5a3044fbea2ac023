"""The most memory of a program that a test runs.

The kernel counts for a process what the process that forked it had then. A test process may have a gigabyte, so a
small process forks the program.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_BETWEEN = """\
import resource, subprocess, sys
with open(sys.argv[1], "w") as printed, open(sys.argv[2], "w") as errors:
    code = subprocess.call(sys.argv[3:], stdout=printed, stderr=errors)
print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def peak_of(printed: Path, errors: Path, *command: str) -> tuple[int, int]:
    """Run a program; its exit code and its peak in KiB. printed, errors: files for what it writes."""
    between = [sys.executable, "-c", _BETWEEN, str(printed), str(errors)]
    code, peak_kib = subprocess.run([*between, *command], check=True, capture_output=True, text=True).stdout.split()
    return int(code), int(peak_kib)
