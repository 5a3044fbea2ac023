"""A call: one request under way, and what its handler may use.

A handler gets the `Call`, with its `Services`, and the decoded request. It answers exactly once with `Call.answer`, at
once or later. If the connection closes before, the answer is dropped.

A request may ask for much: a hundred thousand offsets, or all groups. Its decoding, its handler and the encoding of its
answer are then generators, which yield behind each piece of work. `Call.work` goes on with them while the turn has
time, and in further turns after that, so that other connections get theirs (`long_calls`). A handler that needs the
answers of events, or another outcome, waits for them in its steps (`Answer`, `outcome_of`).

House rule: a handler touches no socket, and its faults cost only its own connection. A handler that loops over
something that a client can make long is a generator.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, Protocol, TypeAlias, TypeVar

from coordinator.config import Config
from coordinator.group.client import Client
from coordinator.loop.clock import Alarm, Clock
from coordinator.loop.cycles import drop_trace
from coordinator.loop.pace import Pace
from coordinator.security.access import Access
from coordinator.server.nodes.discovery import Discovery
from coordinator.server.nodes.topic_data import TopicData
from coordinator.server.runtime.replies import Reply
from coordinator.server.runtime.runtime import Runtime
from coordinator.server.telemetry.measures import Measures
from coordinator.server.transactions import Transactions
from coordinator.server.wire.long_calls import LongCalls
from coordinator.server.wire.throttle import Meter, Throttle
from protocol.errors import TooLarge
from protocol.header import encode_response, encode_response_in_steps
from protocol.messages import Message

Outcome: TypeAlias = "bytes | list[bytes] | Exception"
"""The end of a call: its answer, whole or in parts, or an error."""

Send = Callable[[Outcome], None]

WHOLE_BYTES_MAX = 64 * 1024
"""A larger answer stays in parts, of which the connection writes as many as the client takes."""

PARTS_AT_ONCE = 100
"""Parts of an answer that are joined if they have WHOLE_BYTES_MAX at most."""

Steps = Generator[Any, None, None]
"""Work that yields where it can pause, or an `Answer` where it has to wait for it."""

ENDED: Any = object()
"""Stands for the end of steps."""

Item = TypeVar("Item")


@dataclass(slots=True)
class Services:
    """The services that handlers use.

    start_config: the settings that the server was started with. config: the settings in effect.
    fresh_id: the text of a fresh random UUID. waits: calls with a time at which they are answered (Fetch).
    data: the records of topics. measures: counts. pace: how much a turn of the loop does. throttle: quotas of clients.
    access: who may do what. transactions: the log of transactional ids.
    """

    start_config: Config
    config: Config
    clock: Clock
    fresh_id: Callable[[], str]
    runtime: Runtime
    discovery: Discovery
    waits: Alarm[Call]
    data: TopicData
    measures: Measures
    pace: Pace
    throttle: Throttle
    access: Access
    transactions: Transactions


class Caller(Protocol):
    """The sender of a request.

    listener: name of the listener whose addresses of nodes it gets. local_host: the server's address that it reached.
    """

    listener: str
    local_host: str

    def client(self, client_id: str | None) -> Client:
        """The client of a request with this client id."""

    def set_software(self, software: str) -> None:
        """The client gave its name and version."""


class Call(Reply):
    """A request that waits for its answer. It is the `request` of an event whose answer is its own.

    services: the services that its handler may use; `Api` sets them.
    client: the sender. listener: name of the listener that the request came through.
    local_host: the server's address that the client reached. set_software: stores the client's name and version.
    answered: counts each answer.
    on_wait: called when the time of a wait has come. on_closed: called if the connection closes before the answer.
    on_sent: called when the client has taken the answer, or never will.
    is_closed: whether the connection closed before the answer.
    in_steps: whether the answer is encoded in steps, because the request or its answer may be large.
    is_kept: whether its steps go on if the connection closes, because the request changes something.
    worked_ms: how long its steps took in turns that they filled. was_under_way: as a long call, see `long_calls`.
    may_repeat: whether the same request gets the same answer until the list of topics changes (`repeated_questions`).
    meter: measures the request, because its client has a quota; else None.
    """

    __slots__ = (
        "_long",
        "_outcome",
        "_send",
        "answered",
        "api_key",
        "api_version",
        "client",
        "correlation_id",
        "in_steps",
        "is_closed",
        "is_kept",
        "listener",
        "local_host",
        "may_repeat",
        "meter",
        "on_closed",
        "on_sent",
        "on_wait",
        "services",
        "set_software",
        "was_under_way",
        "worked_ms",
    )

    services: Services

    def __init__(
        self,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        caller: Caller,
        answered: Callable[[int, Message], None],
        long: LongCalls,
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client = caller.client(client_id)
        self.listener = caller.listener
        self.local_host = caller.local_host
        self.set_software: Callable[[str], None] = caller.set_software
        self.answered = answered
        self.on_wait: Callable[[], None] | None = None
        self.on_closed: Callable[[], None] | None = None
        self.on_sent: Callable[[], None] | None = None
        self.is_closed = False
        self.in_steps = False
        self.is_kept = False
        self.may_repeat = False
        self.meter: Meter | None = None
        self.worked_ms = 0
        self.was_under_way = False
        self._long = long
        self._outcome: Outcome | None = None
        self._send: Send | None = None

    def answer(self, body: Message, *, api_version: int | None = None) -> None:
        """Answer with `body`. api_version: of the answer, if it differs from the request's (KIP-511)."""
        version = self.api_version if api_version is None else api_version
        if self.meter is not None:
            body = self.meter.weigh(body)
        if self.in_steps:
            self.is_kept = False  # what the request changes is done
            self.work(self._encode(version, body))
            return
        # As `_end`, without its call: nearly all answers go out here.
        assert self._outcome is None
        self._outcome = outcome = encode_response(self.api_key, version, self.correlation_id, body)
        if self._send is not None:
            self._send(outcome)
        self.answered(self.api_key, body)

    def _encode(self, version: int, body: Message) -> Steps:
        try:
            encoded = yield from encode_response_in_steps(
                self.api_key, version, self.correlation_id, body, self._long.answer_bytes_max
            )
        except TooLarge as error:
            asked = f"client id {self.client.id!r}, {self.client.principal}"
            raise TooLarge(
                f"{error}, as socket.request.max.bytes and fetch.max.bytes have together ({asked})"
            ) from None
        self.answered(self.api_key, body)
        del body  # before the parts are copied
        # Small parts are joined here, because the connection would go through all of them at once.
        parts: list[bytes] = []
        for start in range(0, len(encoded), PARTS_AT_ONCE):
            some = encoded[start : start + PARTS_AT_ONCE]
            parts += some if sum(map(len, some)) > WHOLE_BYTES_MAX else (b"".join(some),)
            yield
        self._end(parts if sum(map(len, parts)) > WHOLE_BYTES_MAX else b"".join(parts))

    def work(self, steps: Steps) -> None:
        """Do `steps` while this turn has time, and the rest in further turns. They stop to wait for an `Answer`.

        If the connection closes, they end, unless the call is kept.
        """
        meter, pace = self.meter, self._long.pace
        begins = meter is not None and meter.begin()
        began_ms = pace.ms()
        try:
            while self.is_kept or not self.is_closed:
                answer = next(steps, ENDED)
                if answer is ENDED:
                    return
                if answer is not None and answer.is_missing:
                    answer.go_on = partial(self.work, steps)
                    return
                if not pace.has_time():
                    self.worked_ms += pace.ms() - began_ms
                    self._long.later(self, partial(self.work, steps))
                    return
            steps.close()
        except Exception as error:  # noqa: BLE001 - it reaches the connection by another way
            self._end(error)
        finally:
            if meter is not None and begins:
                meter.end()

    def do(self, steps: Steps) -> None:
        """Do all `steps` in this turn, because they are few. They too stop where they wait for an `Answer`."""
        try:
            for answer in steps:
                if answer is not None and answer.is_missing:
                    answer.go_on = partial(self.do, steps)
                    return
        except Exception as error:  # noqa: BLE001 - it reaches the connection by another way
            self._end(error)

    def answer_nothing(self) -> None:
        """End the call without an answer, because the client wants none (Produce, acks=0)."""
        if self.meter is not None:
            self.meter.weigh_nothing()
        self._end(b"")

    def deliver(self, body: Message) -> None:
        """See Reply."""
        try:
            self.answer(body)
        except Exception as error:  # noqa: BLE001 - it reaches the connection by another way
            self._end(error)

    def _end(self, outcome: Outcome) -> None:
        assert self._outcome is None
        self._outcome = outcome
        if self._send is not None:
            self._send(outcome)
        elif self.is_closed and isinstance(outcome, Exception):
            drop_trace(outcome)

    # For the connection.

    def take(self, send: Send) -> bytes | list[bytes] | None:
        """The answer if it is there; None if it comes later, through `send`. Raises the call's error.

        send: gets the answer, or the error.
        """
        if isinstance(self._outcome, Exception):
            raise self._outcome
        if self._outcome is None:
            self._send = send
        return self._outcome

    def close(self) -> None:
        """The connection is gone: the answer will be dropped."""
        self._send = None
        self.is_closed = True
        if not self.is_kept:
            self._long.forget(self)
        on_sent, self.on_sent = self.on_sent, None
        if on_sent is not None:
            on_sent()
        self.set_software = lambda _: None
        if self.on_closed is not None:
            self.on_closed()


def parts(items: list[Item], size: int) -> Iterator[list[Item]]:
    """Items in parts of `size` at most."""
    return (items[at : at + size] for at in range(0, len(items), size))


class Answer(Reply):
    """An answer, or another outcome, that the steps of a call wait for: they yield it. It is the reply that takes it.

    found: the answer, once `is_missing` is False. go_on: called then, if the steps wait for it.
    """

    __slots__ = ("found", "go_on", "is_missing")

    def __init__(self) -> None:
        self.found: Any = None
        self.is_missing = True
        self.go_on: Callable[[], None] | None = None

    def deliver(self, body: Any) -> None:
        """See Reply."""
        self.found = body
        self.is_missing = False
        if self.go_on is not None:
            go_on, self.go_on = self.go_on, None  # it refers to this
            go_on()


class Answers:
    """As many answers, which steps wait for as for one. They are in the order of their replies, which it yields."""

    __slots__ = ("_left", "found", "go_on", "is_missing")

    def __init__(self, count: int) -> None:
        self.found: list[Any] = [None] * count
        self.go_on: Callable[[], None] | None = None
        self.is_missing = count > 0
        self._left = count

    def __iter__(self) -> Iterator[Reply]:
        return (_Place(self, number) for number in range(self._left))

    def let_go(self) -> None:
        """The steps that wait won't go on: steps of the same call, which would have answered, have ended before."""
        self.go_on = None

    def take(self, number: int, answer: Any) -> None:
        """Take the answer at a place."""
        self.found[number] = answer
        self._left -= 1
        if not self._left:
            self.is_missing = False
            if self.go_on is not None:
                go_on, self.go_on = self.go_on, None  # it refers to this
                go_on()


class _Place(Reply):
    """One of several answers. There may be as many as elements in a request, so it is small.

    No Errand: a partition delivers to that even if it has refused the request before.
    """

    __slots__ = ("_answers", "_number")

    def __init__(self, answers: Answers, number: int) -> None:
        self._answers = answers
        self._number = number

    def deliver(self, body: Any) -> None:
        """See Reply."""
        self._answers.take(self._number, body)


def short(steps_of: Callable[[Call, Any], Steps]) -> Callable[[Call, Any], None]:
    """A handler whose steps are few: see `Call.do`."""

    @wraps(steps_of)
    def handle(call: Call, request: Any) -> None:
        call.do(steps_of(call, request))

    return handle


def outcome_of(begin: Callable[..., object], *arguments: Any) -> Generator[Answer, None, Any]:
    """Call `begin` with these arguments and a function that takes the outcome; returns the outcome."""
    answer = Answer()
    begin(*arguments, answer.deliver)
    yield answer
    return answer.found


def result_of(begin: Callable[..., object], *arguments: Any) -> Generator[Answer, None, Any]:
    """As `outcome_of`, but raises an outcome that is an exception."""
    outcome = yield from outcome_of(begin, *arguments)
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


Key = TypeVar("Key", bound=Hashable)


def count(keys: Iterable[Key]) -> Generator[None, None, dict[Key, int]]:
    """How often each key is there."""
    counts: dict[Key, int] = {}
    for key in keys:
        counts[key] = counts.get(key, 0) + 1
        yield
    return counts


def ring(call: Call) -> None:
    """The time of a waiting call has come."""
    assert call.on_wait is not None
    call.on_wait()
