"""The types of the messages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from protocol import messages
from tests.protocol import stub

pytestmark = pytest.mark.tidy

STUB = Path(messages.__file__).with_suffix(".pyi")
KEYS = STUB.parents[1] / "schemas/api_keys.py"


def test_stub_is_current() -> None:
    """messages.pyi equals the stub of today's schemas; if not: make stubs."""
    assert STUB.read_text(encoding="utf-8") == stub.stub()


def test_keys_are_current() -> None:
    """schemas/api_keys.py has each API that has a file; if not: make stubs."""
    assert KEYS.read_text(encoding="utf-8") == stub.keys()


def test_stub_names_what_the_module_has() -> None:
    """The stub and the module have the same names."""
    named = re.findall(r"^(?:class|def) (\w+)|^(\w+): Final|^from protocol.* as (\w+)$", stub.stub(), re.MULTILINE)
    public = {name for name in dir(messages) if not name.startswith("_")}
    assert {"".join(names) for names in named} == public
