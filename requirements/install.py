"""Installs a lock with pip, and prints one line for each package that is fetched or built.

    python requirements/install.py LOCK [OPTION OF PIP ...]

With --quiet pip prints nothing for minutes, and without it four lines for each package. So this program reads pip's
output and prints only what takes time. pip's errors go to standard error as they are. If the lock is installed already,
nothing is printed.

House rule: it needs nothing but Python and any pip, because it runs first.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator

PIP = ("-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--progress-bar", "off", "--require-hashes")

FETCHED = re.compile(
    r"(Downloading|Using cached|Processing) (?:.*/)?([^/\s]+?)-(\d[^-/\s]*?)(?:-[^/\s]*\.whl|\.tar\.gz|\.zip)"
    r"(?: (\([\d.]+ \w+\)))?(?= |$)"
)
BUILT = re.compile(r"Building wheel for (\S+) .*started")
INSTALLED = "Installing collected packages: "


def progress(output: Iterable[str]) -> Iterator[str]:
    """The lines to show for pip's lines, each as soon as it is known."""
    for line in map(str.strip, output):
        if fetched := FETCHED.match(line):
            how, *package = fetched.groups(default="")
            yield " ".join(["  downloading" if how == "Downloading" else "  taking", *package]).rstrip()
        elif built := BUILT.match(line):
            yield f"  building {built[1]}"
        elif line.startswith(INSTALLED):
            count = line.count(",") + 1
            yield f"  installing {count} package{'s' if count > 1 else ''}"


def main() -> int:
    """Run pip; returns its exit code."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends both, without a traceback of ours
    lock, *options = sys.argv[1:]
    command = [sys.executable, *PIP, *options, "--requirement", lock]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace") as pip:
        assert pip.stdout is not None
        for line in progress(pip.stdout):
            print(line, flush=True)
    return pip.returncode


if __name__ == "__main__":
    sys.exit(main())
