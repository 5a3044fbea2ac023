"""Counts what a piece of work costs, where a clock tells little."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def calls_of(work: Callable[[], Any]) -> int:
    """How many functions run on this thread for a piece of work, those written in C too."""
    calls = 0

    def count(_: Any, event: str, __: Any) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls
