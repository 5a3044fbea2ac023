"""`python -m benchmarks.turns`: compares servers that do the same works in turns, also on a busy machine.

    python -m benchmarks.turns --page PAGE --image IMAGE             all servers that there are; growth of this one
    python -m benchmarks.turns --servers tenure,old=OLD/bin/tenure   this version beside another
    python -m benchmarks.turns --servers tenure,it=.venv/bin/tenure  this version beside itself: how far chance goes
    python -m benchmarks.turns metadata --servers acls-100,tenure    this version with that many ACLs beside none

Each server is a process on one CPU, and this process loads all of them from another CPU; the others are idle while one
works. A turn is short, because a shared machine changes its speed for seconds at a time: the program divides each turn
by the turn of the first server beside it. After some turns it makes all servers anew in the other order, because the
place of objects in memory alone makes one of two equal servers faster by a few percent.

`bare` writes and syncs as many bytes as a work's record has, and `echo` answers heartbeats with fixed bytes: no server
in Python can need less. kfake is the broker in franz-go, in memory (`kfake`) and with a sync of each write
(`kfake-synced`); it needs Go. Apache Kafka needs Java and Maven.

House rule: an answer that isn't the expected one leaves the server out; no turn counts refusals.
"""

from __future__ import annotations

import gc
import os
import struct
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from itertools import count
from pathlib import Path
from statistics import median, quantiles
from typing import Annotated, NamedTuple

import typer

from benchmarks import drawing, frames, report, servers
from benchmarks.consumers import ConsumerGroup
from benchmarks.driver import Driver, Link, Script, Stuck, clock
from benchmarks.members import Group, Member, UnexpectedAnswer, accept
from benchmarks.meter import cpu_s
from benchmarks.stage import FAILURES, cpus, progress
from benchmarks.works import CONNECTIONS, bare_sync_s, check, create_topic, heartbeats
from tests.support.apache import VERSION, VERSION_44

STORM_SIZE = 200
"""Members that join at once, each on its own connection."""
LARGE = 500
MANY = 50
AT_ONCE = 16
METADATA_PARTITIONS = 6
GROUP_ID = "turns"
US = 1e6

BARE, ECHO, TENURE, ACLS = "bare", "echo", "tenure", "acls-"
KAFKAS = {"kafka-3.9": VERSION, "kafka-4.4": VERSION_44}
KFAKES = {"kfake": False, "kfake-synced": True}
"""Whether each write is synced."""
ALL = (TENURE, BARE, ECHO, *KFAKES, *KAFKAS)
WARM_UP_S = 6.0
"""For each work of Apache Kafka, beside its turns: a JVM compiles meanwhile."""

RESTING_S, LOOK_S = 0.02, 1.0
"""A server that uses less CPU in so long rests."""

MEMBERS = (2, 10, 100, 500, 2_000)
GROUPS = (1, 100, 10_000, 100_000)
"""The sizes of growth."""

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


class Side:
    """A server, and clients of it. acls: how many rules it has."""

    def __init__(self, server: servers.Running, stack: ExitStack, acls: int = 0) -> None:
        self.name = server.name
        self._pid = server.pid
        self._driver = stack.enter_context(Driver("127.0.0.1", server.port))
        self._links = self._driver.connect(CONNECTIONS)
        self._numbers = count()
        self._offsets = count(1)
        self._done = 0
        self._groups: dict[str, tuple[Group, list[Link]]] = {}
        self._consumers: dict[str, ConsumerGroup] = {}
        self._metadata: tuple[tuple[bytes, bytes], bytes] | None = None
        if self.name != ECHO:
            self._ask(create_topic(frames.TOPIC, METADATA_PARTITIONS))
        if acls:
            self._ask(_create(acls))

    def turn(self, work: str, seconds: float) -> float:
        """Do a work for about that long; returns the CPU of one of its requests in us."""
        WORKS[work].prepare(self)
        gc.collect()
        self._done = 0
        used_s = cpu_s(self._pid)
        while not self._done:  # a busy machine may take all of a short turn before its first request
            WORKS[work].run(self, clock() + seconds)
        return (cpu_s(self._pid) - used_s) / self._done * US

    def rest(self) -> None:
        """Wait until the server does nothing: behind many new groups it still writes events and segments."""
        used_s = -RESTING_S
        while cpu_s(self._pid) - used_s > RESTING_S:
            used_s = cpu_s(self._pid)
            time.sleep(LOOK_S)

    def _ask(self, script: Script, link: int = 0) -> None:
        self._driver.start(self._links[link], script)
        self._driver.run()

    def _each(self, links: list[Link], scripts: Iterator[Script]) -> None:
        for link, script in zip(links, scripts, strict=False):
            self._driver.start(link, script)
        self._driver.run()

    def _connected(self, size: int) -> list[Link]:
        """That many connections, one for each member of a group."""
        self._links += self._driver.connect(max(size - len(self._links), 0))
        return self._links[:size]

    def formed(self, name: str, size: int) -> tuple[Group, list[Link]]:
        """The static group of that name and the connections of its members; the first call forms it."""
        if name not in self._groups:
            links = self._connected(size)
            group = Group(f"{GROUP_ID}-{name}", size, static=True)
            if self.name == ECHO:
                for member in group.members:
                    member.generation = 1
            else:
                self._each(links, (group.seat(number) for number in range(size)))
            self._groups[name] = group, links
        return self._groups[name]

    def form_more(self, total: int) -> None:
        """See to it that there are `total` groups of one."""
        first = len(self._groups)
        numbers = iter(range(first, total))

        def form() -> Script:
            for number in numbers:
                group = Group(f"{GROUP_ID}-growth-{number}", 1, static=True)
                yield from group.seat(0)
                self._groups[f"growth-{number}"] = group, self._links[:1]

        self._each(self._links, (form() for _ in range(CONNECTIONS)))

    def heartbeat(self, until: float) -> None:
        """Heartbeats of all members of a group."""
        group, links = self.formed("steady", CONNECTIONS)
        took: list[float] = []
        self._each(links, (heartbeats([group.heartbeat(member)], took, until=until) for member in group.members))
        self._done = len(took)

    def commits(self, until: float, groups: int) -> None:
        """Commits of one offset, of one group or of many, on all connections."""
        if groups == 1:
            group, links = self.formed("steady", CONNECTIONS)
            self._each(links, (self._commit([(group, member)], until) for member in group.members))
        else:
            mine = [self.formed(f"spread-{number}", 1)[0] for number in range(groups)]
            self._each(self._links, (self._commit([(group, group.members[0])], until) for group in mine))

    def _commit(self, members: list[tuple[Group, Member]], until: float) -> Script:
        pack_offset, done = struct.Struct(">q").pack, frames.commit_done(1)
        parts: dict[int, tuple[bytes, bytes, bytes]] = {}
        began, number = 0.0, 0
        while began < until:
            began, number = clock(), number + 1
            place = number % len(members)
            if place not in parts:  # made one by one: those of all groups would outlast the turn
                group, member = members[place]
                template = frames.commit(group.group_id, 1, static=True)
                start, rest = template.halves(frames.generation(member.generation), *member.identity(), frames.OFFSET)
                before, _, behind = rest.partition(frames.OFFSET)
                parts[place] = start, before, behind
            start, before, behind = parts[place]
            answer = yield start + frames.pack_id(number) + before + pack_offset(next(self._offsets)) + behind
            check(answer, frames.pack_id(number), done)
            self._done += 1

    def metadata(self, until: float) -> None:
        """Metadata of a topic, on all connections."""
        self._each(self._links, (self._repeat_metadata(until) for _ in range(CONNECTIONS)))

    def prepare_metadata(self) -> None:
        """Ask once, for the answer that repeats."""
        if self._metadata is None:
            self._ask(self._first_metadata())

    def _first_metadata(self) -> Script:
        halves = frames.metadata([frames.TOPIC]).halves()
        answer = yield halves[0] + bytes(4) + halves[1]
        if frames.string(frames.TOPIC) not in answer or len(answer) < METADATA_PARTITIONS * len(bytes(16)):
            raise UnexpectedAnswer(f"Metadata without the topic: {answer.hex(' ')}")
        self._metadata = halves, answer[8:]

    def _repeat_metadata(self, until: float) -> Script:
        assert self._metadata is not None
        halves, done = self._metadata
        took: list[float] = []
        yield from heartbeats([halves], took, until=until, done=done)
        self._done += len(took)

    def restarts(self, until: float, name: str, size: int, at_once: int = 1) -> None:
        """Restarts of static members of a group, one after the other or several at a time."""
        group, links = self.formed(name, size)
        members = [group.members[number::at_once] for number in range(at_once)]
        self._each(links, (self._restart([(group, each) for each in mine], until) for mine in members))

    def _restart(self, members: list[tuple[Group, Member]], until: float) -> Script:
        began = 0.0
        while began < until:
            began = clock()
            group, member = members[next(self._numbers) % len(members)]
            yield from group.restart(member)
            self._done += 1

    def programs(self, until: float) -> None:
        """Restarts of programs: each connects, asks what clients ask first, and takes its seat in a large group."""
        group, _ = self.formed("large", LARGE)
        metadata = frames.metadata([frames.TOPIC]).fill(0)
        find_coordinator = frames.find_coordinator(group.group_id).fill(0)

        def begin(member: Member) -> Script:
            yield frames.api_versions()
            yield metadata
            accept(frames.error_of((yield find_coordinator)), "FindCoordinator")
            yield from group.restart(member)

        while clock() < until:
            (link,) = self._driver.connect(1)
            self._driver.start(link, begin(group.members[next(self._numbers) % LARGE]))
            self._driver.run()
            self._driver.leave(link)
            self._done += 1

    def growth(self, until: float, total: int, *, commits: bool) -> None:
        """Restarts or commits of that many groups of one."""
        members = [(group, group.members[0]) for group, _ in list(self._groups.values())[:total]]
        self._ask(self._commit(members, until) if commits else self._restart(members, until))

    def new_groups(self, until: float) -> None:
        """New groups of one static member, on all connections."""

        def form() -> Script:
            began = 0.0
            while began < until:
                began = clock()
                yield from Group(f"{GROUP_ID}-new-{next(self._numbers)}", 1, static=True).seat(0)
                self._done += 1

        self._each(self._links, (form() for _ in range(CONNECTIONS)))

    def crowd(self, _until: float, size: int, *, static: bool) -> None:
        """The members of one new group, all at once. One is enough for a turn. Counts members."""
        links = self._connected(size)
        group = Group(f"{GROUP_ID}-crowd-{next(self._numbers)}", size, static=static)
        self._each(links, (group.seat(number) for number in range(size)))
        self._done = size

    def consumers(self, name: str, size: int, partitions: int) -> ConsumerGroup:
        """The static group of the consumer protocol with that name, with a topic of its own."""
        if name not in self._consumers:
            self._ask(create_topic(f"{GROUP_ID}-{name}", partitions))
            self._consumers[name] = self._gather(name, size, partitions)
        return self._consumers[name]

    def _gather(self, name: str, size: int, partitions: int) -> ConsumerGroup:
        group_id = f"{GROUP_ID}-{name}-{next(self._numbers)}"
        group = ConsumerGroup(group_id, size, [f"{GROUP_ID}-{name}"], partitions, static=True)
        links = self._connected(size)
        self._each(links, (group.seat(number) for number in range(size)))
        return group

    def consumer_heartbeat(self, until: float) -> None:
        """Heartbeats of steady members of the consumer protocol."""
        group = self.consumers("steady", CONNECTIONS, CONNECTIONS)
        took: list[float] = []
        scripts = (
            heartbeats([group.heartbeat(member)], took, until=until, done=member.steady) for member in group.members
        )
        self._each(self._links, scripts)
        self._done = len(took)

    def consumer_restarts(self, until: float) -> None:
        """A static member of the consumer protocol goes away and comes back."""
        group = self.consumers("restarts", LARGE, LARGE)

        def roll() -> Script:
            began = 0.0
            while began < until:
                began = clock()
                yield from group.restart(group.members[next(self._numbers) % LARGE])
                self._done += 1

        self._ask(roll())

    def consumer_crowd(self, _until: float) -> None:
        """A new group of 100 members with 1,000 partitions. Counts members."""
        self._gather("crowd", 100, 1_000)
        self._done = 100


def _nothing(_: Side) -> None:
    """Prepare nothing."""


class Work(NamedTuple):
    """A work. run: does it until a time. prepare: what it needs before. record: bytes of its record, for `bare`."""

    title: str
    run: Callable[[Side, float], None]
    prepare: Callable[[Side], object] = _nothing
    record: int = 0


def _restart(title: str, name: str, size: int, at_once: int = 1, record: int = 0) -> Work:
    return Work(
        title,
        lambda side, until: side.restarts(until, name, size, at_once),
        lambda side: side.formed(name, size),
        record,
    )


WORKS: dict[str, Work] = {
    "heartbeat": Work("heartbeat", Side.heartbeat, lambda side: side.formed("steady", CONNECTIONS)),
    "commit": Work(
        "OffsetCommit, one group",
        lambda side, until: side.commits(until, 1),
        lambda side: side.formed("steady", CONNECTIONS),
    ),
    "commit-50": Work(
        f"OffsetCommit, {MANY} groups",
        lambda side, until: side.commits(until, MANY),
        lambda side: [side.formed(f"spread-{number}", 1) for number in range(MANY)],
    ),
    "restart-10": _restart("restart in a group of 10", "ten", 10, record=1_800),
    "restart-500": _restart(f"restart in a group of {LARGE}", "large", LARGE, record=79_000),
    "program": Work(
        f"restart of a program in a group of {LARGE}", Side.programs, lambda side: side.formed("large", LARGE)
    ),
    "restarts-16": _restart(f"restarts in a group of {LARGE}, {AT_ONCE} at once", "large", LARGE, AT_ONCE),
    "new-group": Work("new group of one", Side.new_groups),
    "crowd": Work(f"group of {LARGE} forms, each member", lambda side, until: side.crowd(until, LARGE, static=True)),
    "storm": Work(
        f"{STORM_SIZE} dynamic members at once, each",
        lambda side, until: side.crowd(until, STORM_SIZE, static=False),
    ),
    "metadata": Work("Metadata", Side.metadata, Side.prepare_metadata),
    "consumer-heartbeat": Work(
        "consumer protocol: heartbeat",
        Side.consumer_heartbeat,
        lambda side: side.consumers("steady", CONNECTIONS, CONNECTIONS),
    ),
    "consumer-restart": Work(
        f"consumer protocol: restart in a group of {LARGE}",
        Side.consumer_restarts,
        lambda side: side.consumers("restarts", LARGE, LARGE),
    ),
    "consumer-crowd": Work(
        "consumer protocol: 100 members with 1,000 partitions, each",
        Side.consumer_crowd,
        lambda side: side.consumers("crowd", 100, 1_000),
    ),
}

GROWTH: dict[str, tuple[tuple[int, ...], Callable[[int], Work]]] = {
    "restart, by members of its group": (MEMBERS, lambda size: _restart("", f"members-{size}", size)),
    "restart, by groups of one": (GROUPS, lambda total: _growing(total, commits=False)),
    "OffsetCommit, by groups of one": (GROUPS, lambda total: _growing(total, commits=True)),
}


def _growing(total: int, *, commits: bool) -> Work:
    return Work("", lambda side, until: side.growth(until, total, commits=commits), lambda side: side.form_more(total))


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


class Bare:
    """In place of a server: bytes written and synced beside the log of a server that runs."""

    name = BARE

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def turn(self, work: str, _seconds: float) -> float:
        """Write and sync a record of a work; returns its CPU in us."""
        return bare_sync_s(self._folder, WORKS[work].record) * US


Turns = dict[str, dict[str, list[float]]]
"""The CPU of a request in us, turn by turn: work -> server."""


def started(name: str, cpu: set[int], stack: ExitStack) -> Side | Bare:
    """Start a server, or what stands for one. name: as in --servers."""
    name, _, program = name.partition("=")
    acls = int(name.removeprefix(ACLS)) if name.startswith(ACLS) else 0
    server: AbstractContextManager[servers.Running]
    if name == ECHO:
        server = servers.echo(frames.HEARTBEAT_DONE, cpu)
    elif name in KAFKAS:
        server = servers.kafka(cpu, version=KAFKAS[name])
    elif name in KFAKES:
        server = servers.kfake(cpu, synced=KFAKES[name])
    elif name in {TENURE, BARE} or acls:
        server = servers.tenure(AUTHORIZER if acls else {}, cpu)
    else:
        server = servers.tenure({}, cpu, program=Path(program))
    running = stack.enter_context(server)
    if name == BARE:
        assert running.folder is not None
        return Bare(running.folder)
    return Side(running._replace(name=name), stack, acls)


def compared(works: list[str], names: list[str], turns: int, restarts: int, seconds: float) -> Turns:
    """Let each server do each work in turns.

    turns: of each server until all are made anew, that many times. seconds: of a turn.
    """
    found: Turns = {work: defaultdict(list) for work in works}
    server_cpus, generator_cpus = cpus()
    for restart in range(restarts):
        with ExitStack() as stack, servers.pinned(generator_cpus):
            order = names if restart % 2 else names[::-1]
            sides: list[Side | Bare] = []
            left_out: set[str] = set()
            for name in order:
                try:
                    sides.append(started(name, server_cpus, stack))
                except (*FAILURES, Stuck) as error:
                    progress.print(f"without {name}: {error}")
            for work in works:
                progress.print(WORKS[work].title)
                able = [side for side in sides if _can(side, work, seconds, left_out)]
                for turn in range(turns):
                    for side in able if turn % 2 else able[::-1]:
                        found[work][side.name].append(side.turn(work, seconds))
        progress.print(f"servers {restart + 1} of {restarts}")
    return found


def _can(side: Side | Bare, work: str, seconds: float, left_out: set[str]) -> bool:
    """Whether a server can do a work; warms it up. A server that failed has requests under way, and is left out."""
    if side.name in left_out:
        return False
    # kfake's partitions are in another order in each answer to Metadata.
    if (side.name == ECHO and work != "heartbeat") or (side.name in KFAKES and work == "metadata"):
        return False
    if isinstance(side, Bare) and not WORKS[work].record:
        return False
    try:
        until = clock() + (WARM_UP_S if side.name in KAFKAS else 0.0)
        side.turn(work, seconds)
        while clock() < until:
            side.turn(work, seconds)
    except (*FAILURES, Stuck) as error:
        progress.print(f"{side.name} can't do {work}, and is left out from here on: {error}")
        left_out.add(side.name)
        return False
    return True


def grown(turns: int, seconds: float) -> drawing.Curves:
    """The CPU of a request in us as groups and their members become more: curve -> size -> value."""
    found: drawing.Curves = {}
    server_cpus, generator_cpus = cpus()
    for title, (sizes, work_of) in GROWTH.items():
        with ExitStack() as stack, servers.pinned(generator_cpus):
            side = started(TENURE, server_cpus, stack)
            assert isinstance(side, Side)
            for size in sizes:
                WORKS[title] = work_of(size)
                WORKS[title].prepare(side)
                side.rest()
                took = [side.turn(title, seconds) for _ in range(turns + 1)]
                del WORKS[title]
                found.setdefault(title, {})[size] = median(took[1:])
        progress.print(title)
    return found


def ratios(mine: list[float], first: list[float]) -> str:
    """The median of the ratios of neighbouring turns, with its quartiles."""
    found = [one / other for one, other in zip(mine, first, strict=True)]
    low, middle, high = quantiles(found, n=4) if len(found) > 1 else found * 3
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def table(found: Turns, names: list[str]) -> str:
    """Return the table of a page: for each server its CPU, and the ratio to the first one's."""
    first, *others = names
    lines = [f"| work | {first}, us | {' | '.join(others)} |", "| --- " * (len(names) + 1) + "|"]
    for work, took in found.items():
        cells = [f"{median(took[first]):.1f}" if took[first] else ""]
        cells += [ratios(took[name], took[first]) if took[name] and took[first] else "" for name in others]
        lines.append(f"| {WORKS[work].title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def growth_table(curves: drawing.Curves) -> str:
    """Return the table of growth."""
    lines = ["| CPU in us | sizes: values |", "| --- | --- |"]
    for title, points in curves.items():
        lines.append(f"| {title} | {', '.join(f'{size:,}: {value:.0f}' for size, value in points.items())} |")
    return "\n".join(lines)


def main(
    works: Annotated[list[str] | None, typer.Argument(help=f"Of {', '.join(WORKS)}.")] = None,
    servers_: Annotated[
        str,
        typer.Option(
            "--servers", help=f"Of {', '.join(ALL)}, {ACLS}NUMBER, NAME=PATH of a `tenure`. First: the divisor."
        ),
    ] = ",".join(ALL),
    turns: Annotated[int, typer.Option(min=1, help="Turns of each server until all are made anew.")] = 8,
    restarts: Annotated[int, typer.Option(min=1, help="How often all are made.")] = 2,
    seconds: Annotated[float, typer.Option(help="Of a turn.")] = 0.2,
    page: Annotated[Path | None, typer.Option(help="A page that gets both tables, growth too.")] = None,
    image: Annotated[Path | None, typer.Option(help="A drawing of the tables (SVG).")] = None,
) -> None:
    """Compare what requests cost several servers."""
    unknown = set(works or ()) - set(WORKS)
    if unknown:
        raise typer.BadParameter(f"no such work: {', '.join(sorted(unknown))}")
    asked = servers_.split(",")
    names = [name.partition("=")[0] for name in asked]
    gc.disable()
    found = compared(works or list(WORKS), asked, turns, restarts, seconds)
    text = table(found, names)
    print(text)
    if page is None and image is None:
        return
    curves = grown(turns, seconds)
    growth = growth_table(curves)
    print(growth, file=sys.stderr)
    about = f"{report.place()}; {turns * restarts} turns, load average {os.getloadavg()[2]:.0f}."
    if page is not None:
        page.write_text(report.rewritten(page.read_text(), about, f"{text}\n\n{growth}"))
    if image is not None:
        bars = {
            WORKS[work].title: {name: median(took[name]) for name in names if took[name]}
            for work, took in found.items()
        }
        image.write_text(drawing.svg(bars, curves))


if __name__ == "__main__":
    typer.run(main)
