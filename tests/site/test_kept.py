"""Answers that requests share, and how long they are good."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from coordinator.site.kept import KEPT_BYTES_MAX, KEPT_MAX, Kept


class Times:
    """A clock that the test moves."""

    now_ms = 1_000

    def ms(self) -> int:
        """As Times."""
        return self.now_ms

    def wall_ms(self) -> int:
        """As Times."""
        return self.now_ms


class Work:
    """Makes answers, the first of them one byte long; counts them; waits for `go`."""

    def __init__(self) -> None:
        self.made = 0
        self.size = 1
        self.begun = asyncio.Event()
        self.go = asyncio.Event()
        self.go.set()
        self.error: Exception | None = None

    async def __call__(self) -> list[bytes]:
        """Make one."""
        self.made += 1
        self.begun.set()
        await self.go.wait()
        if self.error is not None:
            raise self.error
        return [b"x" * self.size]


def asking(kept: Kept, work: Callable[[], Coroutine[Any, Any, list[bytes]]]) -> Callable[..., Any]:
    """Return a function that asks for a key, good for 100 ms."""

    async def ask(key: str = "k", version: str = "", kept_ms: int = 100) -> list[bytes]:
        return await kept.get(key, version, kept_ms, work)

    return ask


async def test_requests_share_an_answer_while_it_is_made_and_while_it_is_good() -> None:
    """Requests at the same time share the work, and later ones its answer, until it is too old."""
    times, work = Times(), Work()
    ask = asking(Kept(times), work)
    work.go.clear()
    asked = [asyncio.ensure_future(ask()) for _ in range(3)]
    await work.begun.wait()
    work.go.set()
    assert await asyncio.gather(*asked) == [[b"x"]] * 3
    times.now_ms += 100
    await ask()
    assert work.made == 1
    times.now_ms += 1
    await ask()
    assert work.made == 2


async def test_another_version_or_key_is_another_answer() -> None:
    """An answer that was made from something older isn't used, although it is young."""
    work = Work()
    ask = asking(Kept(Times()), work)
    await ask(version="1")
    await ask(version="2")
    await ask("other", version="2")
    assert work.made == 3


async def test_an_answer_that_is_good_for_no_time_is_only_shared() -> None:
    """With 0 ms nothing stays in memory."""
    work = Work()
    kept = Kept(Times())
    await asking(kept, work)(kept_ms=0)
    assert len(kept) == 0


async def test_an_error_is_nobodys_answer_but_of_those_who_wait() -> None:
    """The next request asks again."""
    work = Work()
    ask = asking(Kept(Times()), work)
    work.error = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        await ask()
    work.error = None
    assert await ask() == [b"x"]


async def test_one_who_goes_away_takes_no_answer_from_the_others() -> None:
    """A request that is cancelled doesn't end the work."""
    work = Work()
    ask = asking(Kept(Times()), work)
    work.go.clear()
    one, other = (asyncio.ensure_future(ask()) for _ in range(2))
    await work.begun.wait()
    one.cancel()
    work.go.set()
    assert await other == [b"x"]
    assert work.made == 1


async def test_few_answers_are_kept_and_none_that_is_large() -> None:
    """Those that are good for the shortest time go first."""
    work, times = Work(), Times()
    kept = Kept(times)
    ask = asking(kept, work)
    for number in range(KEPT_MAX + 5):
        times.now_ms += 1
        await ask(str(number))
    assert len(kept) == KEPT_MAX
    await ask(str(KEPT_MAX + 4))
    assert work.made == KEPT_MAX + 5
    work.size = KEPT_BYTES_MAX + 1
    await ask("large")
    await ask("large")
    assert work.made == KEPT_MAX + 7
