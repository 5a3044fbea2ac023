"""The page and the documentation say the same about each check."""

from __future__ import annotations

import re
from pathlib import Path

from coordinator.audit.check.advice import ADVICE
from coordinator.audit.check.checks import CHECKS

PAGE = Path("docs/audit.md")


def test_advice_is_that_of_the_documentation() -> None:
    """Word for word, for every check, with its severity."""
    sections = re.findall(
        r"^### `(\w+)` \((\w+)\)\n\n(.*?)(?=\n\n#|\n*\Z)", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    assert {name: " ".join(text.split()) for name, _severity, text in sections} == ADVICE
    assert {name: severity for name, severity, _text in sections} == {
        name: check.severity.value for name, check in CHECKS.items()
    }
