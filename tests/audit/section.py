"""Writes the sections about the checks into docs/ask-why/audit-checks.md, from coordinator.audit.check.checks.

    python -m tests.audit.section

`make format` runs it; a test fails if the page differs.

House rule: it changes nothing outside of the two marks.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

from coordinator.audit.check.checks import CHECKS

PAGE = Path(__file__).resolve().parents[2] / "docs/ask-why/audit-checks.md"
WIDTH = 120
BEGIN = "<!-- From here on `make format` writes what coordinator/audit/check/checks.py says. -->"
END = "<!-- Up to here. -->"


def sections() -> str:
    """A section for each check: its name, its severity, its advice."""
    parts = [
        f"### `{name}` ({check.severity})\n"
        f"{textwrap.fill(check.advice, WIDTH, break_long_words=False, break_on_hyphens=False)}\n"
        for name, check in CHECKS.items()
    ]
    return "\n".join(parts)


def with_sections(page: str) -> str:
    """Return the page with current sections."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n\n{sections()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(with_sections(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
