"""Static members of many groups that use a cluster as clients do, and note what each request came to.

    with Probe(bootstraps, groups=20, members=3) as probe:
        since = probe.now()
        nodes[0].kill()
        probe.wait_for_commits(since)         # each group has had a commit acknowledged that was sent since
        assert not wrongs(probe.history)

Each member joins with an instance id, then sends a heartbeat every `pause_s`; the first member of a group also commits
the next number and reads it back. At another node it reads before it commits. A member asks its coordinator alone, and
looks for another one as clients do: after NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, a closed connection, or a second
without an answer.

With `restarts`, members also restart: a program that has nothing but its instance id joins again, and keeps the seat.
The history then has joins, and the generation that each join and heartbeat was told.

`anchor` holds a connection to each group's present coordinator, and keeps asking it, whatever it answers and whoever
is the coordinator since: this is what finds a frozen node that wakes up and says yes. Its commits go to a topic
partition of their own.

House rule: it knows nothing but Kafka's protocol, so that the same probe measures Tenure and Apache Kafka.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from random import Random
from typing import Any, cast

from coordinator.testing.loop_thread import LoopThread
from protocol.header import decode_response, encode_request
from protocol.messages import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    JoinGroupResponse,
    Message,
    OffsetCommitResponse,
    OffsetFetchResponse,
)
from tests.support.cluster_history import OK, Asked, lost_commits
from tests.support.patience import WITHIN_S
from tests.support.requests import (
    commit_request,
    heartbeat_request,
    join_request,
    offsets_request,
    sync_request,
)
from tests.support.started import Started
from tests.support.tenure import wait_until

FIND, JOIN, SYNC, HEARTBEAT, COMMIT, FETCH = 1, 5, 3, 3, 7, 5
"""Versions with plain headers, which Kafka 3.9 and Tenure have."""

NOT_AVAILABLE, NOT_COORDINATOR = 15, 16
ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS, FENCED_INSTANCE_ID = 22, 25, 27, 82

TOPIC = "orders"
ANSWER_WITHIN_S = 1.0
"""A member gives a node up after a second without an answer."""
JOIN_WITHIN_S = 60.0
"""A JoinGroup waits for the other members."""
RETRY_S = 0.05
ASK_AT_ONCE = 32
"""How many members ask a node at the same time. With 1,000, a loop that gets little CPU is late for each answer."""


class Lost(Exception):
    """No answer came: nothing listens, the connection closed, or time was up."""


class Link:
    """A connection to a node; requests go one after the other."""

    def __init__(self, node: int, port: int) -> None:
        self.node = node
        self._port = port
        self._number = 0
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, request: Message, version: int, within_s: float = ANSWER_WITHIN_S) -> Message:
        """The answer; Lost without one, and the connection is closed."""
        try:
            async with asyncio.timeout(within_s):
                await self.send(request, version)
                return await self.receive(request, version)
        except (OSError, TimeoutError, EOFError) as error:
            self.close()
            raise Lost(str(error)) from None

    async def send(self, request: Message, version: int) -> None:
        """Send a request, and don't wait for its answer."""
        if self._writer is None:
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 22)
        self._number += 1
        self._writer.write(encode_request(request, version, self._number, "probe"))

    async def receive(self, request: Message, version: int) -> Message:
        """The next answer, which is one to a request of this kind."""
        assert self._reader is not None
        assert request.API_KEY is not None
        frame = await self._reader.readexactly(int.from_bytes(await self._reader.readexactly(4)))
        return decode_response(request.API_KEY, version, frame)[1]

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None


class Member:
    """A static member; its task is `run`."""

    def __init__(self, probe: Probe, group: str, number: int) -> None:
        self.probe = probe
        self.group = group
        self.number = number
        self.instance_id = f"{group}-{number}"
        self.member_id = ""
        self.generation = -1
        self.generations: list[int] = []
        self.assignments: list[bytes] = []
        self.fenced = False
        self._link: Link | None = None
        self._next = 0
        # Before it commits at another node: a commit would hide that this node lacks the commits of the former one.
        self._reads_first = True

    async def run(self) -> None:
        """Be a member until the task is cancelled."""
        try:
            while not self.fenced:
                try:
                    await self._step()
                except Lost:
                    self._forget()
                await asyncio.sleep(self.probe.pause_s if self._link is not None else RETRY_S)
        finally:
            self._forget()

    async def _step(self) -> None:
        if self._link is None:
            self._link = await self.probe.find(self.group)
            if self._link is None:
                return
            self._reads_first = True
        if self.generation < 0:
            await self._join(self._link)
            return
        if self.probe.restarts and self.probe.random.random() < self.probe.restarts:
            self._start_anew()
            return
        if not self._go_on(await self._heartbeat(self._link)) or self.number:
            return
        if self._reads_first and not self._go_on(await self._fetch(self._link)):
            return
        self._reads_first = False
        if self._go_on(await self._commit(self._link)):
            self._go_on(await self._fetch(self._link))

    def _go_on(self, error: int) -> bool:
        """Whether an answer was a yes; what else it was decides what the next step does."""
        if error in {NOT_COORDINATOR, NOT_AVAILABLE}:
            self._forget()
        elif error in {REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION}:
            self.generation = -1
        elif error == UNKNOWN_MEMBER_ID:
            self.generation, self.member_id = -1, ""
        elif error == FENCED_INSTANCE_ID:
            self.fenced = True
        return error == OK

    def _forget(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    async def _asked(self, kind: str, link: Link, request: Message, version: int, value: int = -1) -> tuple[int, int]:
        """Ask and note it; returns the error and the value."""
        async with self.probe.turns[link.node]:
            sent = self.probe.now()
            try:
                answer = await link.ask(request, version)
            except Lost:
                self.probe.note(Asked(self.group, kind, self.number, link.node, sent, None, None, value))
                raise
        error, value = outcome(answer, value)
        self.probe.note(Asked(self.group, kind, self.number, link.node, sent, self.probe.now(), error, value))
        return error, value

    def _start_anew(self) -> None:
        """A new process has no more than the instance id."""
        self.member_id, self.generation = "", -1
        self._forget()

    async def _heartbeat(self, link: Link) -> int:
        told = self.generation if self.probe.restarts else -1
        return (await self._asked("heartbeat", link, self.heartbeat(), HEARTBEAT, told))[0]

    async def _commit(self, link: Link) -> int:
        self._next += 1
        return (await self._asked("commit", link, self.commit(0, self._next), COMMIT, self._next))[0]

    async def _fetch(self, link: Link) -> int:
        return (await self._asked("fetch", link, fetch(self.group, 0), FETCH))[0]

    def heartbeat(self) -> Message:
        """Its Heartbeat."""
        return heartbeat_request(self.group, self.generation, self.member_id, self.instance_id)

    def commit(self, partition: int, offset: int) -> Message:
        """Its OffsetCommit of one topic partition."""
        who = (self.generation, self.member_id, self.instance_id)
        return commit_request(self.group, {(TOPIC, partition): offset}, *who)

    async def _join(self, link: Link) -> None:
        session_ms = self.probe.session_timeout_ms
        request = join_request(self.group, self.member_id, self.instance_id, session_ms=session_ms, rebalance_ms=30_000)
        sent = self.probe.now()
        asked = Asked(self.group, "join", self.number, link.node, sent, None, None)
        try:
            answer = cast("JoinGroupResponse", await link.ask(request, JOIN, JOIN_WITHIN_S))
        except Lost:
            self._note_join(asked)
            raise
        error, generation = answer.error_code, answer.generation_id
        self._note_join(asked._replace(got=self.probe.now(), error=error, value=-1 if error else generation))
        if not self._go_on(error):
            return
        self.member_id = answer.member_id
        given = {
            each.member_id: (each.group_instance_id or "").encode()
            for each in answer.members
            if answer.leader == answer.member_id
        }
        sync = sync_request(self.group, answer.generation_id, self.member_id, self.instance_id, given)
        if self.generations:
            # A leader that joins again by its member id wants a rebalance. A program that restarts doesn't.
            self.member_id = ""
        synced = cast("Any", await link.ask(sync, SYNC, JOIN_WITHIN_S))
        if self._go_on(synced.error_code):
            self.member_id = answer.member_id
            self.generation = answer.generation_id
            self.generations.append(self.generation)
            self.assignments.append(bytes(synced.assignment))

    def _note_join(self, asked: Asked) -> None:
        if self.probe.restarts:
            self.probe.note(asked)


def outcome(answer: Message, value: int) -> tuple[int, int]:
    """Error and value of an answer to heartbeat, commit or fetch."""
    if isinstance(answer, OffsetCommitResponse):
        return answer.topics[0].partitions[0].error_code, value
    if isinstance(answer, OffsetFetchResponse):
        if answer.error_code:
            return answer.error_code, -1
        found = answer.topics[0].partitions[0]
        return found.error_code, found.committed_offset
    error: int = cast("Any", answer).error_code
    return error, value


def fetch(group: str, partition: int) -> Message:
    """OffsetFetch of one topic partition."""
    return offsets_request(group, {TOPIC: [partition]})


class Probe(Started):
    """See the module.

    bootstraps: HOST:PORT of each node; a node's number is its place here. restarts: how often a member restarts, as a
    share of its rounds. seed: of their chance. history: all that was asked so far. turns: of the members at each node.
    """

    def __init__(
        self,
        bootstraps: Sequence[str],
        *,
        groups: int,
        members: int = 1,
        pause_s: float = 0.05,
        session_timeout_ms: int = 10_000,
        restarts: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.ports = [int(each.rpartition(":")[2]) for each in bootstraps]
        self.pause_s = pause_s
        self.session_timeout_ms = session_timeout_ms
        self.restarts = restarts
        self.random = Random(seed)
        self.history: list[Asked] = []
        self.members = {
            f"probe-{group}": [Member(self, f"probe-{group}", number) for number in range(members)]
            for group in range(groups)
        }
        self.turns = [asyncio.Semaphore(ASK_AT_ONCE) for _ in self.ports]
        self._failed_at = dict.fromkeys(range(len(self.ports)), 0.0)
        self._loop = LoopThread("probe")
        self._tasks: set[asyncio.Task[None]] = set()

    def now(self) -> float:
        """The clock of the history."""
        return time.monotonic()

    def note(self, request: Asked) -> None:
        """Add a request to the history."""
        self.history.append(request)

    # -- what the test calls

    def start(self) -> None:
        """Start all members, and wait until they have joined."""

        def start_all() -> None:
            for group in self.members.values():
                for each in group:
                    self._start(each.run())

        self._loop.do(start_all)
        wait_until(self._is_settled, "all members have joined", WITHIN_S)

    def close(self) -> None:
        """End all members; none leaves its group."""

        async def cancel() -> None:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

        self._loop.run(cancel())
        self._loop.end()

    def wait_for_commits(self, since: float) -> float:
        """Wait until each group has an acknowledged commit that was sent after `since`; returns the last one's time."""
        first: dict[str, float] = {}
        place = 0

        def all_have() -> bool:
            nonlocal place
            history = self.history
            for each in history[place:]:
                if each.kind == "commit" and each.is_yes and each.sent >= since and each.member >= 0:
                    first.setdefault(each.group, each.got or 0.0)
            place = len(history)
            return len(first) == len(self.members)

        try:
            wait_until(all_have, "a commit of each group", WITHIN_S)
        except TimeoutError:
            missing = sorted(set(self.members) - set(first))
            last = [[each for each in self.history if each.group == group][-3:] for group in missing[:3]]
            raise TimeoutError(f"no commit of {missing}: {last}") from None
        return max(first.values())

    def wait(self, for_s: float) -> None:
        """Wait until the first member of each group has gone on for that long."""
        until = self.now() + for_s
        wait_until(lambda: self.now() >= until, "time", for_s + WITHIN_S)

    def state(self) -> dict[str, tuple[object, ...]]:
        """Generation, member ids and assignments of each group, as its members know them."""
        return {
            group: tuple((each.generation, each.member_id, tuple(each.assignments)) for each in members)
            for group, members in self.members.items()
        }

    def seats(self) -> dict[str, tuple[int, bytes]]:
        """The generation and the assignment that each member was told last."""
        return {
            each.instance_id: (each.generations[-1], each.assignments[-1])
            for members in self.members.values()
            for each in members
        }

    def rebalances(self, before: dict[str, tuple[object, ...]]) -> list[str]:
        """The groups whose generation or seats changed since `before`, or that lost a member to a twin."""
        now = self.state()
        return sorted({group for group in now if now[group] != before[group]} | set(self.fenced()))

    def fenced(self) -> list[str]:
        """The groups that lost a member to a twin."""
        return sorted(group for group, members in self.members.items() if any(each.fenced for each in members))

    def coordinators(self) -> dict[str, int]:
        """The node that each group's first member asks now; -1 while it looks for one."""
        return {
            group: members[0]._link.node if members[0]._link is not None else -1
            for group, members in self.members.items()
        }

    def committed(self) -> dict[str, int]:
        """Each group's committed offset, read anew."""

        async def read(group: str) -> int:
            while True:
                with suppress(Lost):
                    link = await self.find(group)
                    if link is not None:
                        error, value = outcome(await link.ask(fetch(group, 0), FETCH), -1)
                        link.close()
                        if error == OK:
                            return value
                await asyncio.sleep(RETRY_S)

        async def read_all() -> dict[str, int]:
            async with asyncio.timeout(WITHIN_S):
                return dict(zip(self.members, await asyncio.gather(*map(read, self.members)), strict=True))

        return self._loop.run(read_all())

    def lost(self) -> list[str]:
        """Commits that are acknowledged by now, and that a read doesn't find."""
        acknowledged = list(self.history)
        return lost_commits(acknowledged, self.committed())

    def anchor(self, for_s: float) -> None:
        """Hold on to each group's present coordinator for that long."""

        async def begin() -> None:
            for members in self.members.values():
                link = members[0]._link
                if link is not None:
                    self._start(self._anchored(members[0], Link(link.node, self.ports[link.node]), for_s))

        self._loop.run(begin())

    # -- inside

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)

    def _is_settled(self) -> bool:
        return all(
            len({each.generation for each in members}) == 1 and members[0].generation > 0
            for members in self.members.values()
        )

    async def find(self, group: str) -> Link | None:
        """A connection to the group's coordinator; None while nobody knows one."""
        for node in sorted(self._failed_at, key=lambda each: self._failed_at[each]):
            link = Link(node, self.ports[node])
            try:
                async with self.turns[node]:
                    answer = await link.ask(FindCoordinatorRequest(key=group, key_type=0), FIND)
            except Lost:
                self._failed_at[node] = self.now()
                continue
            found = cast("FindCoordinatorResponse", answer)
            if found.error_code == OK and found.port in self.ports:
                if found.port == self.ports[node]:
                    return link
                link.close()
                return Link(self.ports.index(found.port), found.port)
            link.close()
        return None

    async def _anchored(self, member: Member, link: Link, for_s: float) -> None:
        """Send to one node without waiting for answers, and note what comes."""
        open_requests: asyncio.Queue[tuple[str, float, Message, int, int]] = asyncio.Queue()
        until = self.now() + for_s

        async def receive() -> None:
            while True:
                kind, sent, request, version, value = await open_requests.get()
                try:
                    error, found = outcome(await link.receive(request, version), value)
                except (OSError, EOFError):
                    # From here on the node answers nothing: it may have said its last yes to this anchor, and no no.
                    self.note(Asked(member.group, "heartbeat", -1, link.node, self.now(), None, None))
                    raise
                # Its commits are of another topic partition than the member's.
                shown = found if kind == "fetch" else -1
                self.note(Asked(member.group, kind, -1, link.node, sent, self.now(), error, shown))

        number = 0
        receiver = asyncio.ensure_future(receive())
        try:
            while self.now() < until and not receiver.done():
                number += 1
                for kind, request, version in (
                    ("heartbeat", member.heartbeat(), HEARTBEAT),
                    ("fetch", fetch(member.group, 0), FETCH),
                    ("commit", member.commit(1, number), COMMIT),
                ):
                    sent = self.now()
                    await link.send(request, version)
                    await open_requests.put((kind, sent, request, version, number))
                await asyncio.sleep(0.1)
        except OSError:
            pass
        finally:
            receiver.cancel()
            await asyncio.gather(receiver, return_exceptions=True)
            link.close()
