"""The recorded answers of Apache Kafka 3.9.1 as text: a file for each module of scripts, a section for each script.

With these files Tenure is compared with Kafka on machines without Java. `make test-oracle` compares them with Kafka's
answers of today; ORACLE_RECORD=1 writes them again, for a review of the diff.

House rule: only Kafka's answers are written here.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from tests.oracle.stage import SCRIPTS, Script
from tests.oracle.transcript import Line

FOLDER = Path(__file__).with_name("recorded")
IS_RECORDING = os.environ.get("ORACLE_RECORD") == "1"


def answers(lines: Sequence[Line]) -> list[str]:
    """Return the part of a transcript that is recorded: the server's answers."""
    return [str(line) for line in lines if not line.is_asked]


class Recorded:
    """All files, read when they are first asked for."""

    def __init__(self) -> None:
        self._modules: dict[str, dict[str, list[str]]] = {}

    def answers_to(self, script: Script) -> list[str] | None:
        """Return Kafka's answers in this script; None if they were never recorded."""
        return self._module(script.module).get(script.name)

    def put(self, script: Script, lines: Sequence[Line]) -> None:
        """Record a script anew."""
        self._module(script.module)[script.name] = answers(lines)

    def write(self) -> None:
        """Write the files that were read, without scripts that don't exist any more."""
        for module, sections in self._modules.items():
            names = [script.name for script in SCRIPTS.values() if script.module == module and script.name in sections]
            text = "\n".join("\n".join([f"## {name}", *sections[name], ""]) for name in names)
            (FOLDER / f"{module}.txt").write_text(text)

    def _module(self, module: str) -> dict[str, list[str]]:
        if module not in self._modules:
            file = FOLDER / f"{module}.txt"
            self._modules[module] = _sections(file.read_text()) if file.exists() else {}
        return self._modules[module]


def _sections(text: str) -> dict[str, list[str]]:
    sections: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.split("\n"):
        if line.startswith("## "):
            lines = sections[line.removeprefix("## ")] = []
        elif line:
            lines.append(line)
    return sections
