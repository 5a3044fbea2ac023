"""Many cases in one test: each is tried, a failure names its case, and fixtures go through."""

from __future__ import annotations

import inspect

import pytest

from tests.support.cases import each


def test_each_case_is_tried() -> None:
    """The test gets each case, of one argument or of several, and the fixtures; pytest sees only these."""
    seen: list[object] = []

    @each("number", range(2))
    @each("low, high", [(1, 2), (3, 4)])
    def tries(fixture: str, number: int, low: int, high: int) -> None:
        seen.append((fixture, number, low, high))

    assert list(inspect.signature(tries).parameters) == ["fixture"]
    tries(fixture="f")
    assert seen == [("f", 0, 1, 2), ("f", 0, 3, 4), ("f", 1, 1, 2), ("f", 1, 3, 4)]


async def test_a_coroutine_is_awaited_for_each_case() -> None:
    """The same holds for a test that is a coroutine."""
    seen: list[int] = []

    @each("number", range(3))
    async def tries(number: int) -> None:
        seen.append(number)

    await tries()
    assert seen == [0, 1, 2]


def test_a_case_that_fails_is_named() -> None:
    """The error of a case has a note with its arguments, and fails the test."""

    @each("number", range(3))
    def fails(number: int) -> None:
        assert number != 1

    with pytest.raises(AssertionError) as raised:
        fails()
    assert raised.value.__notes__ == ["in the case number=1"]


def test_no_case_is_an_error() -> None:
    """A list of cases that came out empty fails."""
    with pytest.raises(AssertionError, match="without a case"):
        each("number", [])


_seen: list[int] = []


@each("number", [4, 2])
def test_pytest_runs_it(number: int, request: pytest.FixtureRequest) -> None:
    """Pytest collects one test, and gives it its fixtures."""
    assert request.node.name == "test_pytest_runs_it"
    _seen.append(number)
    assert _seen == [4, 2][: len(_seen)]
