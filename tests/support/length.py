"""How much a test does: little in `make test`, more in `make test-long`, most in `make nightly`.

The variable HYPOTHESIS_PROFILE says which; it also chooses the number of Hypothesis's examples (tests/conftest.py).

House rule: `make test` tries each kind of a thing; more rounds of the same kind belong to the longer runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pytest
from hypothesis import settings

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "short")
"""short, dev, long, nightly or fuzz."""

IS_NIGHTLY = PROFILE in {"nightly", "fuzz"}


Number = TypeVar("Number", int, float)


def rounds(short: Number, long: Number, nightly: Number) -> Number:
    """The number for this run. Its test has the marker `rounds` or `long`, so that `make test-long` runs it."""
    return nightly if IS_NIGHTLY else long if PROFILE == "long" else short


def at_most(examples: int) -> settings:
    """Hypothesis's settings of this run with so many examples at most, for a test whose examples are long."""
    return settings(max_examples=min(examples, settings().max_examples))


def most_are_long(
    cases: Iterable[Any], short: Callable[[Any], bool], *, rare: Callable[[Any], bool] = lambda _: False
) -> list[Any]:
    """The cases of a test, all but some with the marker `long`.

    short: whether `make test` tries that case. rare: whether, of the others, only `make nightly` does.
    """
    known = list(cases)
    assert any(map(short, known)), "no case is left to make test"
    marks = {False: pytest.mark.long, True: pytest.mark.nightly}
    return [case if short(case) else pytest.param(case, marks=marks[rare(case)]) for case in known]
