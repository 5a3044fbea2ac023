"""Many small cases in one test: `each` in place of `pytest.mark.parametrize`.

    @each("api, version", APIS)
    def test_request_round_trip(api: str, version: int) -> None: ...

Pytest spends several milliseconds on each test, in every process that collects it. A case that takes less is no test of
its own. If a case fails, a note to the error names it, and later cases are not tried.

House rule: such a test gets no fixture that a case would change for the next one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any


def each(names: str, cases: Iterable[Any]) -> Callable[[Callable[..., Any]], Any]:
    """Call the test with each of the cases, one after the other. names: of its arguments, separated by commas."""
    arguments = [name.strip() for name in names.split(",")]
    tried = [dict(zip(arguments, case if len(arguments) > 1 else (case,), strict=True)) for case in cases]
    assert tried, "a test without a case tests nothing"

    def decorate(test: Callable[..., Any]) -> Any:
        @wraps(test)
        def try_each(**fixtures: Any) -> None:
            for case in tried:
                with _named(case):
                    test(**fixtures, **case)

        @wraps(test)
        async def await_each(**fixtures: Any) -> None:
            for case in tried:
                with _named(case):
                    await test(**fixtures, **case)

        whole: Any = await_each if inspect.iscoroutinefunction(test) else try_each
        asked = inspect.signature(test)
        left = [parameter for name, parameter in asked.parameters.items() if name not in arguments]
        whole.__signature__ = asked.replace(parameters=left)  # pytest looks for fixtures
        return whole

    return decorate


@contextmanager
def _named(case: dict[str, Any]) -> Iterator[None]:
    """Name the case in an error that comes out of it."""
    try:
        yield
    except BaseException as error:
        error.add_note("in the case " + ", ".join(f"{name}={value!r}" for name, value in case.items()))
        raise
