"""Log lines of a test, and a clock that stands still."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from coordinator.loop.clock import SystemClock
from coordinator.loop.lines import Lines


class Written:
    """Log lines, and what was written so far."""

    def __init__(self) -> None:
        self._stream = io.StringIO()
        self.lines = Lines(self._stream, "json", None, SystemClock(), "Observer")

    @property
    def all(self) -> list[dict[str, Any]]:
        """All lines."""
        return [json.loads(line) for line in self._stream.getvalue().splitlines()]

    @property
    def events(self) -> list[str]:
        """Their stable names."""
        return [line["event"] for line in self.all]


@pytest.fixture
def written() -> Written:
    """Log lines of this test."""
    return Written()
