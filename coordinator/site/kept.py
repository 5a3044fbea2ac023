"""Answers that requests share: while an answer is made, and for a short time afterwards.

A question about many groups costs the cluster work. However many pages ask, it is asked once at a time, and again only
when its answer is too old.

House rule: at most so many answers are kept, none of them large, so no client can fill the memory with them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, NamedTuple

from coordinator.loop.clock import Times

KEPT_MAX = 32
"""The most answers in memory, beside those that are being made."""

KEPT_BYTES_MAX = 4 * 1024 * 1024
"""A larger answer is only shared by requests that come while it is made: 10,000 groups are 3 MB."""

Pieces = list[bytes]


class _Answer(NamedTuple):
    """version: of what it was made from. until_ms: how long it is good; None while it is being made."""

    version: str
    work: asyncio.Future[Pieces]
    until_ms: int | None


class Kept:
    """See the module."""

    def __init__(self, times: Times) -> None:
        self._times = times
        self._answers: dict[Hashable, _Answer] = {}

    def __len__(self) -> int:
        """The number of answers that are in memory or being made."""
        return len(self._answers)

    def get(
        self, key: Hashable, version: str, kept_ms: int, make: Callable[[], Coroutine[Any, Any, Pieces]]
    ) -> asyncio.Future[Pieces]:
        """The answer for `key`: the one in memory, or the one that is being made, or a new one.

        version: an answer of another version is too old. kept_ms: how long the answer is good after it was made.
        """
        now_ms = self._times.ms()
        known = self._answers.get(key)
        if known is not None and known.version == version and (known.until_ms is None or now_ms <= known.until_ms):
            return asyncio.shield(known.work)
        work = asyncio.ensure_future(make())
        self._answers[key] = _Answer(version, work, None)
        work.add_done_callback(lambda _: self._made(key, work, kept_ms))
        return asyncio.shield(work)

    def _made(self, key: Hashable, work: asyncio.Future[Pieces], kept_ms: int) -> None:
        is_good = not work.cancelled() and work.exception() is None
        known = self._answers.get(key)
        if known is None or known.work is not work:
            return
        now_ms = self._times.ms()
        if is_good and kept_ms and sum(map(len, work.result())) <= KEPT_BYTES_MAX:
            self._answers[key] = known._replace(until_ms=now_ms + kept_ms)
        else:
            del self._answers[key]
        made = [(each.until_ms, one) for one, each in self._answers.items() if each.until_ms is not None]
        for until_ms, one in sorted(made, key=lambda pair: pair[0])[: max(len(made) - KEPT_MAX, 0)]:
            assert until_ms is not None
            del self._answers[one]
