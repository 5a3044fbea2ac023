"""Histories that no rule of the inference was made for: a seed draws settings, actions and times.

A `Round` is one history: a group with its clients, traits and timing, all drawn from the seed, the server's name and
the round's number. It starts members, and then does one thing after the other, without a look at the group: sometimes
several things within half a second, sometimes none for ten. What begins has its end later, in between other things: a
frozen program goes on, a static member comes back, a deploy reaches the next member.

The seed decides what a round does and when, but not how fast machine, clients and server are. So a played history is
kept as a file, and the seed draws another history of the same kind.

House rule: nothing here looks at the inference or its rules. An action is what users and operators do.
"""

from __future__ import annotations

import heapq
import itertools
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from confluent_kafka import KafkaException

from coordinator.client.errors import ClientError
from tests.observe.stage import BROKER_SESSION_MS, Member, Stage

SETTLE_S = 20.0
"""The last rebalance of a round has that time to end."""

MEMBERS_MAX = 6
TOPICS_MAX = 3
PARTITIONS_MAX = 24


class Timing(NamedTuple):
    """Times of a group. pace: how much slower than the quickest rounds things happen. lasts_s: how long a round is."""

    session_ms: int
    heartbeat_ms: int
    commit_ms: int
    max_poll_ms: int
    pace: float
    lasts_s: float


DEFAULT = Timing(45_000, 3_000, 5_000, 300_000, 5.0, 330.0)
"""The defaults of Kafka's clients. Nobody waits here for a max.poll.interval.ms."""


@dataclass(frozen=True, slots=True)
class Traits:
    """A group as the seed draws it.

    static_share, silent_share: how many of its members have an instance id, and never commit. pattern: whether members
    subscribe to a regular expression.
    """

    client: str
    protocol: str
    assignor: str
    static_share: float
    silent_share: float
    pattern: bool
    timing: Timing


def traits_of(chance: random.Random, protocol: str, *, default: bool) -> Traits:
    """Draw a group. default: with the clients' default times."""
    if protocol == "consumer":
        client = chance.choices(("confluent", "kafka-clients-4"), (4, 1))[0]
    elif default:
        client = chance.choices(("confluent", "aiokafka", "kafka-python"), (3, 1, 1))[0]
    else:
        client = chance.choices(("confluent", "aiokafka", "kafka-python", "kafka-clients-3"), (5, 2, 2, 2))[0]
    cooperates = client != "aiokafka" and chance.random() < 0.35
    session_ms = chance.choice((3_000, 4_000, 6_000))
    timing = Timing(
        session_ms if protocol == "classic" else BROKER_SESSION_MS,
        chance.choice((300, session_ms // 3)),
        chance.choice((500, 500, 1_000)),
        chance.choice((8_000, 12_000)),
        1.0,
        75.0,
    )
    return Traits(
        client,
        protocol,
        "cooperative-sticky" if cooperates else "range",
        chance.choice((0.0, 0.0, 0.5, 1.0)),
        chance.choice((0.0, 0.0, 0.0, 0.25)),
        client == "confluent" and chance.random() < 0.2,
        DEFAULT if default else timing,
    )


@dataclass
class Seat:
    """A program's place in the group. is_away: a static member's program ended, and comes back."""

    name: str
    instance_id: str | None
    settings: dict[str, Any]
    program: Member
    topics: tuple[str, ...]
    is_frozen: bool = False
    is_away: bool = False


@dataclass(order=True)
class _Due:
    at_s: float
    number: int
    do: Callable[[], None] = field(compare=False)


class Round:
    """Plays one history on a stage. chance: decides all."""

    def __init__(
        self, stage: Stage, traits: Traits, chance: random.Random, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stage = stage
        self._clock = clock
        self._traits = traits
        self._timing = traits.timing
        self._chance = chance
        self._seats: list[Seat] = []
        self._due: list[_Due] = []
        self._numbers = itertools.count(1)
        self._now_s = 0.0

    def play(self) -> None:
        """All of it."""
        self._stage.topic(self._chance.choice((2, 4, 6)))
        if self._chance.random() < 0.5:
            self._stage.topic(self._chance.choice((1, 3)))
        begin = self._clock()
        for _ in range(self._chance.randint(1, 4)):
            self._join()
        self._later(self._chance.uniform(3.0, 6.0), self._act)
        while self._due and self._due[0].at_s < self._timing.lasts_s:
            due = heapq.heappop(self._due)
            self._stage.pause(max(begin + due.at_s - self._clock(), 0))
            self._now_s = max(due.at_s, self._clock() - begin)
            with suppress(OSError, ValueError, ClientError, KafkaException):  # a program that is gone, a refusal
                due.do()
        for seat in self._seats:
            if seat.is_frozen:
                seat.program.signal(signal.SIGCONT)
        with suppress(AssertionError):
            self._stage.until("an end", lambda group: group.state in {"Stable", "Empty"}, within_s=SETTLE_S)

    def _later(self, seconds: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._due, _Due(self._now_s + seconds, next(self._numbers), do))

    # What happens

    def _act(self) -> None:
        """Do something, and plan the next time."""
        pause_s = self._chance.choices(
            (self._chance.uniform(0, 0.5), self._chance.uniform(0.5, 3), self._chance.uniform(3, 9)), (25, 35, 40)
        )[0]
        self._later(pause_s * self._timing.pace, self._act)
        actions: list[tuple[Callable[[], None], int]] = [
            (self._join, 4),
            (self._leave, 3),
            (self._kill, 3),
            (self._restart, 6 if self._traits.static_share else 0),
            (self._twin, 1 if self._traits.static_share else 0),
            (self._remove, 1 if self._traits.static_share else 0),
            (self._freeze, 2),
            (self._hang, 1 if self._can_obey and self._timing is not DEFAULT else 0),
            (self._hold, 1 if self._traits.client == "confluent" and self._timing is not DEFAULT else 0),
            (self._subscribe, 2 if self._can_obey else 0),
            (self._unsubscribe, 1 if self._can_obey else 0),
            (self._grow, 1),
            (self._make_topic, 1),
            (self._roll, 1),
            (self._storm, 1),
        ]
        if not self._here():
            self._join()
            return
        self._chance.choices([do for do, _ in actions], [weight for _, weight in actions])[0]()

    @property
    def _can_obey(self) -> bool:
        """Whether a program takes commands beside `close`."""
        return not self._traits.client.startswith("kafka-clients")

    def _here(self) -> list[Seat]:
        return [seat for seat in self._seats if not seat.is_away and not seat.is_frozen and seat.program.is_running]

    def _any(self) -> Seat | None:
        here = self._here()
        return self._chance.choice(here) if here else None

    def _topics(self) -> tuple[str, ...]:
        """Some of the topics, or all by a pattern."""
        if self._traits.pattern:
            return (f"^{self._stage.group}-.*",)
        topics = self._stage.topics
        return tuple(sorted(self._chance.sample(topics, self._chance.randint(1, len(topics)))))

    def _join(self) -> None:
        if len(self._here()) >= MEMBERS_MAX:
            return
        number = next(self._numbers)
        is_static = self._chance.random() < self._traits.static_share
        is_silent = self._chance.random() < self._traits.silent_share
        timing = self._timing
        settings: dict[str, Any] = {
            "assignor": self._traits.assignor,
            "session_ms": timing.session_ms,
            "heartbeat_ms": timing.heartbeat_ms,
            "max_poll_ms": timing.max_poll_ms,
            "commit_ms": 0 if is_silent and self._can_obey else timing.commit_ms,
        }
        topics = self._topics() if self._can_obey else (self._stage.topics[0],)
        name = f"s{number}" if is_static else f"m{number}"
        instance_id = name if is_static else None
        program = self._stage.start(name, topics=topics, instance_id=instance_id, **settings)
        self._seats.append(Seat(name, instance_id, settings, program, topics))

    def _end(self, seat: Seat, *, is_kill: bool) -> None:
        if is_kill:
            seat.program.kill()
        else:
            seat.program.tell("close")

    def _leave(self) -> None:
        if (seat := self._any()) is not None:
            self._seats.remove(seat)
            self._end(seat, is_kill=False)

    def _kill(self) -> None:
        if (seat := self._any()) is not None:
            self._seats.remove(seat)
            self._end(seat, is_kill=True)

    def _restart(self, seat: Seat | None = None) -> None:
        """A static member, or a dynamic one in a deploy, ends and comes back: within its session, or after it."""
        here = [each for each in self._here() if each.instance_id is not None]
        seat = seat or (self._chance.choice(here) if here else None)
        if seat is None or seat.is_away:
            return
        self._end(seat, is_kill=self._chance.random() < 0.5)
        seat.is_away = True
        session_s = self._timing.session_ms / 1_000
        back_s = session_s * (
            self._chance.uniform(0.05, 0.8) if self._chance.random() < 0.7 else self._chance.uniform(1.1, 1.8)
        )
        self._later(back_s, lambda: self._back(seat))

    def _back(self, seat: Seat) -> None:
        if seat.is_away:
            seat.is_away = False
            seat.program = self._stage.start(
                seat.name, topics=seat.topics, instance_id=seat.instance_id, **seat.settings
            )

    def _twin(self) -> None:
        """A second program with the instance id of one that runs."""
        here = [each for each in self._here() if each.instance_id is not None]
        if here:
            seat = self._chance.choice(here)
            program = self._stage.start(seat.name, topics=seat.topics, instance_id=seat.instance_id, **seat.settings)
            self._seats.append(Seat(seat.name, seat.instance_id, seat.settings, program, seat.topics))

    def _remove(self) -> None:
        """An operator removes a static member, which may run or not."""
        names = {seat.instance_id for seat in self._seats} - {None}
        if names:
            self._stage.remove(self._chance.choice(sorted(filter(None, names))))

    def _freeze(self) -> None:
        """A program hangs, for less than its session or for longer."""
        seat = self._any()
        if seat is None:
            return
        seat.program.signal(signal.SIGSTOP)
        seat.is_frozen = True

        def thaw() -> None:
            seat.is_frozen = False
            seat.program.signal(signal.SIGCONT)

        self._later(self._timing.session_ms / 1_000 * self._chance.uniform(0.2, 2.0), thaw)

    def _hang(self) -> None:
        """A program doesn't poll, for less than its max.poll.interval.ms or for longer."""
        if (seat := self._any()) is not None:
            seat.program.tell("sleep", s=self._timing.max_poll_ms / 1_000 * self._chance.uniform(0.3, 1.6))

    def _hold(self) -> None:
        """A program takes long to give up partitions, as soon as it has to."""
        if (seat := self._any()) is not None:
            seat.program.tell("hold", s=self._timing.max_poll_ms / 1_000 * self._chance.uniform(0.1, 1.4))

    def _subscribe(self) -> None:
        if (seat := self._any()) is not None:
            seat.topics = self._topics()
            seat.program.tell("subscribe", topics=list(seat.topics))

    def _unsubscribe(self) -> None:
        seat = self._any()
        if seat is None:
            return
        seat.program.tell("subscribe", topics=[])
        self._later(
            self._timing.pace * self._chance.uniform(0.2, 6),
            lambda: seat.program.tell("subscribe", topics=list(seat.topics)),
        )

    def _grow(self) -> None:
        self._stage.grow_by(self._chance.choice(self._stage.topics), self._chance.randint(1, 3), PARTITIONS_MAX)

    def _make_topic(self) -> None:
        """A pattern matches it; else nobody cares, until somebody subscribes to it."""
        if len(self._stage.topics) < TOPICS_MAX:
            self._stage.topic(self._chance.choice((1, 2, 4)))

    def _roll(self) -> None:
        """A deploy: each program ends and comes back, one after the other."""
        gap_s = self._timing.pace * self._chance.uniform(0.3, 4)
        for number, seat in enumerate(self._here()):
            self._later(number * gap_s, lambda seat=seat: self._replace(seat, gap_s))  # type: ignore[misc]

    def _replace(self, seat: Seat, gap_s: float) -> None:
        if seat.is_away or not seat.program.is_running:
            return
        self._end(seat, is_kill=False)
        seat.is_away = True
        self._later(self._chance.uniform(0, gap_s), lambda: self._back(seat))

    def _storm(self) -> None:
        """Several come, leave or are killed at once."""
        for _ in range(self._chance.randint(2, 4)):
            self._chance.choice((self._join, self._leave, self._kill))()
