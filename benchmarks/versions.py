"""`python -m benchmarks.versions`: compares two servers with the same work in turns, also on a busy machine.

    python -m benchmarks.versions --other OLD/.venv/bin/tenure    this version beside another
    python -m benchmarks.versions --acls 100                      this version with that many ACLs beside none
    python -m benchmarks.versions --other .venv/bin/tenure        this version beside itself: how far chance goes

Each server is a process on one CPU, and this process loads both from another CPU; one server is idle while the other
works. A turn is short, because a shared machine changes its speed for seconds at a time: the program compares each turn
with the turn of the other server beside it. After some turns it makes both servers anew in the other order, because the
place of objects in memory alone makes one of two equal servers faster by a few percent.

House rule: an answer that isn't the expected one ends the program; no turn counts refusals.
"""

from __future__ import annotations

import gc
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from statistics import median, quantiles
from typing import Annotated, NamedTuple

import typer

from benchmarks import frames, servers
from benchmarks.driver import Driver, Script, clock
from benchmarks.members import Group, UnexpectedAnswer
from benchmarks.meter import cpu_s
from benchmarks.stage import cpus
from benchmarks.works import CONNECTIONS, check, create_topic

WORKS = ("heartbeat", "commit", "metadata", "storm")
STORM_SIZE = 200
"""Members that join at once, each on its own connection."""
STORMS_PER_TURN = 3
METADATA_PARTITIONS = 6
GROUP_ID = "versions"
US = 1e6

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # So that the program may create the topic and the rules. Rules decide about groups and topics from then on.
    "allow.everyone.if.no.acl.found": "true",
}
ON_TOPIC, ON_GROUP = 2, 3
LITERAL, PREFIXED = 3, 4
READ = 3
"""Numbers of CreateAcls."""
USER = "User:ANONYMOUS"
"""The principal of every client on a listener without TLS and SASL."""


class Compared(NamedTuple):
    """The CPU of a request of a work in us: turn by turn, of the first server and of the second."""

    work: str
    first: list[float]
    second: list[float]

    def __str__(self) -> str:
        ratios = [one / other for one, other in zip(self.first, self.second, strict=True)]
        low, _, high = quantiles(ratios, n=4)
        return (
            f"{self.work:9} {median(self.first):7.2f} us, beside {median(self.second):7.2f}; "
            f"ratio {median(ratios):.3f} ({low:.3f} to {high:.3f}), {len(ratios)} pairs"
        )


def repeated(ask: Callable[[int], bytes], done: bytes, answered: list[int], until: float) -> Script:
    """Send requests, each when the one before is answered. The last is the first that is sent at `until` or later.

    ask: makes the request of a correlation id. done: the bytes behind that id in each answer.
    """
    number, began = 0, 0.0
    while began < until:
        number += 1
        began = clock()
        answer = yield ask(number)
        check(answer, frames.pack_id(number), done)
    answered.append(number)


class Side:
    """A server, and clients of it."""

    def __init__(self, server: servers.Running, stack: ExitStack, acls: int) -> None:
        self._pid = server.pid
        self._driver = stack.enter_context(Driver("127.0.0.1", server.port))
        self._links = self._driver.connect(CONNECTIONS)
        self._storms = self._driver.connect(STORM_SIZE)
        self._numbers = count()
        self._ask(create_topic(frames.TOPIC, METADATA_PARTITIONS))
        if acls:
            self._ask(_create(acls))
        self._group = Group(GROUP_ID, CONNECTIONS, static=True)
        for number, link in enumerate(self._links):
            self._driver.start(link, self._group.seat(number))
        self._driver.run()
        self._metadata = frames.metadata([frames.TOPIC]).halves()
        self._topics: list[bytes] = []
        self._ask(self._once(self._metadata))

    def _ask(self, script: Script) -> None:
        self._driver.start(self._links[0], script)
        self._driver.run()

    def _once(self, halves: tuple[bytes, bytes]) -> Script:
        answer = yield halves[0] + bytes(4) + halves[1]
        self._topics.append(answer[8:])
        if frames.string(frames.TOPIC) not in answer or len(answer) < METADATA_PARTITIONS * len(bytes(16)):
            raise UnexpectedAnswer(f"Metadata without the topic: {answer.hex(' ')}")

    def turn(self, work: str, seconds: float) -> float:
        """Do a work for about that long; returns the CPU of a request in us, and of a storm that of a member."""
        gc.collect()
        used_s = cpu_s(self._pid)
        done = self._storm() if work == "storm" else self._steady(work, clock() + seconds)
        return (cpu_s(self._pid) - used_s) / done * US

    def _storm(self) -> int:
        for _ in range(STORMS_PER_TURN):
            group = Group(f"{GROUP_ID}-{next(self._numbers)}", STORM_SIZE, static=False)
            for number, link in enumerate(self._storms):
                self._driver.start(link, group.seat(number))
            self._driver.run()
        return STORMS_PER_TURN * STORM_SIZE

    def _steady(self, work: str, until: float) -> int:
        answered: list[int] = []
        for link, (ask, done) in zip(self._links, self._asks(work), strict=True):
            self._driver.start(link, repeated(ask, done, answered, until))
        self._driver.run()
        return sum(answered)

    def _asks(self, work: str) -> Iterator[tuple[Callable[[int], bytes], bytes]]:
        """Each connection's requests, and the end of their answers."""
        for member in self._group.members:
            if work == "metadata":
                yield _numbered(*self._metadata), self._topics[0]
            elif work == "heartbeat":
                yield _numbered(*self._group.heartbeat(member)), frames.HEARTBEAT_DONE
            else:
                template = frames.commit(GROUP_ID, 1, static=True)
                halves = template.halves(frames.generation(member.generation), *member.identity(), frames.OFFSET)
                yield _rising(*halves), frames.commit_done(1)


def _numbered(start: bytes, rest: bytes) -> Callable[[int], bytes]:
    """Return a maker of requests that differ in their correlation id."""
    return lambda number: start + frames.pack_id(number) + rest


def _rising(start: bytes, rest: bytes) -> Callable[[int], bytes]:
    """Return a maker of commits whose offset rises."""
    pack_offset = struct.Struct(">q").pack
    before, _, behind = rest.partition(frames.OFFSET)
    return lambda number: start + frames.pack_id(number) + before + pack_offset(number) + behind


def rules(total: int) -> list[frames.Acl]:
    """Return rules for one user as an administrator has them: half for topics, half for groups, few of them used."""
    found = [
        frames.Acl(ON_TOPIC, LITERAL, frames.TOPIC, USER, READ),
        frames.Acl(ON_GROUP, PREFIXED, GROUP_ID, USER, READ),
    ]
    for number in range(total - len(found)):
        kind, name = ((ON_TOPIC, "topic"), (ON_GROUP, "group"))[number % 2]
        pattern = PREFIXED if number % 4 > 1 else LITERAL
        found.append(frames.Acl(kind, pattern, f"{name}-{number}", USER, READ))
    return found


def _create(total: int) -> Script:
    """Create the rules."""
    answer = yield frames.create_acls(rules(total))
    if any(answer[16 + 4 * number : 18 + 4 * number] != b"\0\0" for number in range(total)):
        raise UnexpectedAnswer(f"CreateAcls: {answer.hex(' ')}")


def compared(
    works: list[str], other: Path | None, acls: int, pairs: int, restarts: int, seconds: float
) -> list[Compared]:
    """Compare this version with another, or with ACLs and without.

    pairs: turns of each server until both are made anew, that many times. seconds: of a turn.
    """
    found = {work: Compared(work, [], []) for work in works}
    server_cpus, generator_cpus = cpus()
    settings = AUTHORIZER if acls else {}
    for restart in range(restarts):
        with ExitStack() as stack, servers.pinned(generator_cpus):

            def first(stack: ExitStack = stack) -> Side:
                return Side(stack.enter_context(servers.tenure(settings, server_cpus)), stack, acls)

            def second(stack: ExitStack = stack) -> Side:
                return Side(stack.enter_context(servers.tenure({}, server_cpus, program=other)), stack, 0)

            made = {which: which() for which in ((first, second) if restart % 2 else (second, first))}
            for work in works:
                for side in made.values():
                    side.turn(work, seconds)
                for pair in range(pairs):
                    order = (first, second) if pair % 2 else (second, first)
                    took = {which: made[which].turn(work, seconds) for which in order}
                    found[work].first.append(took[first])
                    found[work].second.append(took[second])
        print(f"servers {restart + 1} of {restarts}", file=sys.stderr)
    return list(found.values())


def main(
    works: Annotated[list[str] | None, typer.Argument(help=f"Of {', '.join(WORKS)}.")] = None,
    other: Annotated[Path | None, typer.Option(help="The `tenure` of another version.")] = None,
    acls: Annotated[int, typer.Option(min=0, help="ACLs of the first server.")] = 0,
    pairs: Annotated[int, typer.Option(min=1, help="Turns of each server until both are made anew.")] = 10,
    restarts: Annotated[int, typer.Option(min=1, help="How often both are made.")] = 6,
    seconds: Annotated[float, typer.Option(help="Of a turn.")] = 0.3,
) -> None:
    """Compare this version with another one, or with ACLs and without."""
    unknown = set(works or ()) - set(WORKS)
    if unknown or (other is None and not acls):
        raise typer.BadParameter(f"no such work: {unknown}" if unknown else "--other or --acls is wanted")
    gc.disable()
    for line in compared(list(works or WORKS), other, acls, pairs, restarts, seconds):
        print(line)


if __name__ == "__main__":
    typer.run(main)
