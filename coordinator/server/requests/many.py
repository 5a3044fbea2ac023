"""Requests that name much: their pieces, one event for each, and the answers put together.

House rule: no function works through a long list without a step between its items.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from functools import partial
from typing import Any, NamedTuple, Self, TypeVar

from coordinator.group.events import ClientEvent
from coordinator.log.engine import EngineError, Ownership
from coordinator.server.nodes.topics import Change, ChangeResult
from coordinator.server.runtime.partition import Partition
from coordinator.server.wire.call import Answer, Call, Steps, parts
from coordinator.text import cut_text
from schemas.errors import ErrorCode

AT_ONCE = 200
"""Topic partitions or groups in an event of their own, at most: about 0.5 ms."""

Item = TypeVar("Item")


class Piece(NamedTuple):
    """Some of the topics of a request, with some of their partitions.

    goes_on: its first topic is the last one of the piece before.
    """

    topics: list[tuple[str, list[Any]]]
    goes_on: bool


def pieces(topics: Iterable[tuple[str, list[Any]]], size: int = AT_ONCE) -> Generator[None, None, list[Piece]]:
    """Topics in pieces of `size` topics and partitions at most; at least one piece. Yields behind each topic.

    Topics without partitions are left out.
    """
    found = [Piece([], goes_on=False)]
    room = size
    for name, partitions in topics:
        at = 0
        while at < len(partitions):
            if room < 2:  # a topic with a partition
                found.append(Piece([], goes_on=at > 0))
                room = size
            some = partitions[at : at + room - 1]
            found[-1].topics.append((name, some))
            at += len(some)
            room -= 1 + len(some)
            yield
        yield
    return found


def each_once(names: Iterable[str]) -> Generator[None, None, tuple[dict[str, int], list[int]]]:
    """The names, each once with its number, and for each name of a request that number. Yields behind each."""
    numbers: dict[str, int] = {}
    places: list[int] = []
    for name in names:
        places.append(numbers.setdefault(name, len(numbers)))
        yield
    return numbers, places


def at_places(items: list[Item], places: list[int]) -> Generator[None, None, list[Item]]:
    """The items at these places. Yields behind each part, and copies a part without a step for each item."""
    found: list[Item] = []
    for some in parts(places, AT_ONCE):
        found += map(items.__getitem__, some)
        yield
    return found


class Asked(NamedTuple):
    """The question about one group of several, and who owned its partition then.

    There may be as many as elements in a request. A function for each would take 200 bytes more.
    """

    event: ClientEvent
    partition: Partition
    own: Ownership | None

    @classmethod
    def now(cls, event: ClientEvent, partition: Partition) -> Self:
        """The question with the owner of this moment."""
        return cls(event, partition, partition.ownership)


def still_true(asked: list[Asked], bodies: list[Item]) -> Generator[None, None, list[Item]]:
    """The answers about several groups. Yields behind each.

    The first answer may have waited for the last one, and another node may have its group by now: then it is a refusal.
    """
    told: list[Item] = []
    for (event, partition, own), body in zip(asked, bodies, strict=True):
        is_old = not getattr(body, "error_code", ErrorCode.NONE) and not partition.has_stayed(own)
        told.append(event.refused(ErrorCode.NOT_COORDINATOR) if is_old else body)
        yield
    return told


class Refused(Exception):
    """A part of a request that can't be answered or carried out. error, message: of the answer."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        self.error = error
        self.message = cut_text(message)
        super().__init__(self.message)


class TimedOut(EngineError):
    """No result of a change came within the request's timeout. The change may still be made."""


def error_of(outcome: EngineError) -> ErrorCode:
    """The error code of a change that failed."""
    return ErrorCode.REQUEST_TIMED_OUT if isinstance(outcome, TimedOut) else ErrorCode.KAFKA_STORAGE_ERROR


def refuse_all(results: Iterable[Any], error: ErrorCode, message: str) -> Steps:
    """Give all these results of an answer an error."""
    for result in results:
        result.error_code, result.error_message = error, cut_text(message)
        yield


TIMEOUT_MIN_MS = 1_000
"""A change has at least this long, whatever the request says: a disk may need some of it."""


def changed(call: Call, change: Change, timeout_ms: int | None = None) -> Generator[Answer, None, ChangeResult]:
    """Make a change of the list of topics. The result is TimedOut if none comes in time: another worker may hang."""
    answer = Answer()
    waits = call.services.waits
    if timeout_ms is not None:
        late = TimedOut(f"the change was not made within {timeout_ms} milliseconds, and may be made later")
        call.on_wait = partial(answer.deliver, late)
        waits.arm(call, waits.ms() + max(timeout_ms, TIMEOUT_MIN_MS))
    call.services.discovery.topics.change(change, answer.deliver)
    try:
        yield answer
    finally:  # these steps end here if the client has gone
        if timeout_ms is not None:
            waits.cancel(call)
    outcome: ChangeResult = answer.found  # a change that is made later comes to nobody
    return outcome


def answer_changed(
    call: Call, change: Change | None, body: Any, accepted: Iterable[Any], timeout_ms: int | None = None
) -> Steps:
    """Make a change, if there is one, then answer with `body`. accepted: its results, which a failure refuses."""
    outcome = {} if change is None else (yield from changed(call, change, timeout_ms))
    if isinstance(outcome, EngineError):
        yield from refuse_all(accepted, error_of(outcome), str(outcome))
    call.answer(body)


def append(topics: list[Any], more: list[Any], *, goes_on: bool) -> None:
    """Add the topics of the next piece to those of an answer."""
    if goes_on:
        topics[-1].partitions.extend(more[0].partitions)
    topics.extend(more[1:] if goes_on else more)
