"""The life of a member without a client: it joins, syncs, sends heartbeats, and begins again where a consumer would.

A life is one task. `restart` ends it and begins another one; `leave` ends it. A silent member's task stands still at
its next request. The lives of one `fill` have a `Crew`.

House rule: the coordinator's answers alone decide what a member does next, and all that a member waits for ends with
its task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from enum import StrEnum
from typing import Any, ClassVar, NamedTuple

from coordinator.client.client import COORDINATOR_MOVED, KEY_TYPE_GROUP, metadata_request
from coordinator.client.connection import Address
from coordinator.client.errors import Refused, Unreachable
from coordinator.testing.link import Link
from protocol.consumer import CONSUMER, decode_assignment, decode_subscription
from protocol.messages import (
    ConsumerProtocolAssignment,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    Message,
    MetadataResponse,
    SyncGroupRequest,
    SyncGroupResponse,
    encode,
)
from schemas.errors import ErrorCode

VERSION = b"\0\0"
"""The version in front of a subscription and of an assignment."""
SOON_S = 0.01
"""The pause before a heartbeat that another member made necessary; it doubles up to the interval."""
CONNECTS_AT_ONCE = 32
"""Connections that wait for the server at the same time; Kafka accepts 50."""
RETRY_FIRST_S = 0.02
RETRY_MAX_S = 1.0
"""The pause before a member connects again; it doubles from try to try."""

Assignment = Mapping[str, Sequence[int]]
"""Topic -> partitions."""
Key = tuple[str, str]
"""Instance id, "" for a dynamic member, and member id."""


class NotSeated(Exception):
    """The members didn't come to their seats in time, or a coordinator refused one; `str()` names the first of them."""


class Doing(StrEnum):
    """A member's activity. A silent member stands still in it. ENDED: a coordinator fenced or refused it."""

    JOINING = "joining"
    SEATED = "seated"
    LEFT = "left"
    ENDED = "ended"


class Member(NamedTuple):
    """A member as it sees itself.

    member_id: "" before its first JoinGroup was answered. generation: that of its last seat, -1 before the first.
    trouble: the error that ended it, or that it met last on its way to its seat; "" if there was none.
    """

    instance_id: str | None
    member_id: str
    generation: int
    assignment: Assignment
    doing: Doing
    is_silent: bool
    trouble: str


class Life:
    """One member. Its methods run on the loop.

    index: among the members of its crew. slow_s: how long it takes to join a rebalance that it heard of.
    refused: why a coordinator refused it for good, "" if none did; a fenced member isn't refused.
    """

    JOINS_AGAIN: ClassVar[Collection[int]] = {
        ErrorCode.MEMBER_ID_REQUIRED,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
    }
    """Errors after which a member joins again, beside UNKNOWN_MEMBER_ID."""

    def __init__(self, crew: Crew, index: int, instance_id: str | None) -> None:
        self.index = index
        self.seen = Member(instance_id, "", -1, {}, Doing.JOINING, is_silent=False, trouble="")
        self.slow_s = 0.0
        self.refused = ""
        self._crew = crew
        self._speaks = asyncio.Event()
        self._turn = asyncio.Lock()  # one restart or leave after the other
        self._link: Link | None = None
        self._pause: asyncio.Future[bool] | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        """Its name for people."""
        return self.seen.instance_id or f"member {self.index}"

    @property
    def takes_part(self) -> bool:
        """Whether the next generation will have it."""
        return not self.seen.is_silent and self.seen.doing in {Doing.JOINING, Doing.SEATED}

    def start(self) -> None:
        """Begin to live, without a member id."""
        self.refused = ""
        self._see(member_id="", doing=Doing.JOINING, is_silent=False, trouble="")
        self._speaks.set()
        self._task = asyncio.create_task(self._live())
        self._task.add_done_callback(self._ended)

    async def restart(self) -> None:
        """End without a word, and begin to live again."""
        async with self._turn:
            await self.end()
            self.start()

    async def end(self) -> None:
        """End without a word."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])  # `_ended` has shown the error of a task that failed
            self._task = None

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Show a bug of this module to those who wait."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self.refused = repr(error)
            self._see(doing=Doing.ENDED, trouble=self.refused)

    async def leave(self) -> None:
        """End for good, and say so. Raises Refused, Unreachable."""
        async with self._turn:
            await self.end()
            self._see(doing=Doing.LEFT, is_silent=False)
            await self._say_goodbye()
        self._crew.nudge()

    async def _say_goodbye(self) -> None:
        me = LeaveGroupRequest.MemberIdentity(
            member_id=self.seen.member_id, group_instance_id=self.seen.instance_id, reason="the test said so"
        )
        request = LeaveGroupRequest(group_id=self._crew.join.group_id, members=[me])
        answer: LeaveGroupResponse = await self._ask_last(request)
        if code := answer.error_code or answer.members[0].error_code:
            raise Refused(code, f"LeaveGroup of {self.name}")

    async def _ask_last(self, request: Any) -> Any:
        """Send the last request of a member, on a connection of its own. Raises Refused, Unreachable."""
        link = await self._find()
        try:
            return await link.ask(request, self._crew.answer_within_s)
        finally:
            link.close()

    def fall_silent(self) -> None:
        """Send nothing more."""
        self._speaks.clear()
        self._crew.entered(self)
        self._see(is_silent=True)

    def speak_again(self) -> None:
        """Go on, with a heartbeat if the member has a seat."""
        self._see(is_silent=False)
        self._speaks.set()
        self.nudge()

    def nudge(self) -> None:
        """Send the next heartbeat now."""
        self._wake(True)

    async def _live(self) -> None:
        """Hold a seat until the coordinator fences or refuses the member."""
        pause_s = RETRY_FIRST_S
        while True:
            try:
                await self._speaks.wait()
                self._link = await self._find()
                await self._crew.assemble(self)
                pause_s = RETRY_FIRST_S
                while True:
                    await self._enter()
                    await self._stay()
            except (Refused, Unreachable) as error:
                self._see(trouble=str(error))
                if isinstance(error, Refused) and error.error_code not in COORDINATOR_MOVED:
                    self.refused = "" if error.error_code == ErrorCode.FENCED_INSTANCE_ID else str(error)
                    self._see(doing=Doing.ENDED)
                    return
            finally:
                self._crew.give_up(self)
                self._crew.entered(self)
                if self._link is not None:
                    self._link.close()
                    self._link = None
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, RETRY_MAX_S)

    async def _find(self) -> Link:
        """Connect to the group's coordinator. Raises Unreachable, Refused."""
        link = await self._crew.connect(None)
        try:
            asks = FindCoordinatorRequest(key_type=KEY_TYPE_GROUP, coordinator_keys=[self._crew.join.group_id])
            answer: FindCoordinatorResponse = await link.ask(asks, self._crew.answer_within_s)
        except BaseException:
            link.close()
            raise
        (found,) = answer.coordinators
        address = Address(found.host, found.port)
        if address == link.address:
            return link
        link.close()
        if found.error_code:
            raise Refused(found.error_code, "FindCoordinator")
        return await self._crew.connect(address)

    async def _enter(self) -> None:
        """Join and sync, until the member has a seat. Raises Unreachable, Refused."""
        while self.seen.doing is Doing.JOINING:
            self._crew.enters(self)
            joined: JoinGroupResponse = await self._ask(self._join_request())
            if joined.error_code in {ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED}:
                self._see(member_id=joined.member_id)
            if not self._goes_on("JoinGroup", joined.error_code):
                continue
            synced: SyncGroupResponse = await self._ask(self._sync_request(joined, await self._assign(joined)))
            if self._goes_on("SyncGroup", synced.error_code):
                assignment = decode_assignment(CONSUMER, synced.assignment) or {}
                self._see(generation=joined.generation_id, assignment=assignment, doing=Doing.SEATED, trouble="")
        self._crew.entered(self)

    async def _stay(self) -> None:
        """Send heartbeats until the generation is over. Raises Unreachable, Refused."""
        pause_s = self._crew.first_pause_s(self)
        while True:
            is_nudged = await self._pause_for(pause_s)
            code = await self._heartbeat()
            if code:
                break
            pause_s = SOON_S if is_nudged else min(2 * pause_s, self._crew.interval_s)
        began_s = self._time_s()
        while code == ErrorCode.REBALANCE_IN_PROGRESS:
            left_s = began_s + self.slow_s - self._time_s()
            if left_s <= 0:
                break
            await self._pause_for(min(left_s, self._crew.interval_s))
            code = await self._heartbeat()
        self._goes_on("Heartbeat", code)

    def _goes_on(self, api: str, code: int) -> bool:
        """Whether a request succeeded; if not, the member joins again. Raises Refused where it can't."""
        if not code:
            return True
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._see(member_id="")
        elif code not in self.JOINS_AGAIN:
            raise Refused(code, api)
        self._see(doing=Doing.JOINING)
        return False

    async def _heartbeat(self) -> int:
        """Send a heartbeat and return the error code of its answer."""
        me = self.seen
        request = HeartbeatRequest(
            group_id=self._crew.join.group_id,
            generation_id=me.generation,
            member_id=me.member_id,
            group_instance_id=me.instance_id,
        )
        answer: HeartbeatResponse = await self._ask(request)
        return answer.error_code

    def _join_request(self) -> JoinGroupRequest:
        request = copy(self._crew.join)
        request.member_id, request.group_instance_id = self.seen.member_id, self.seen.instance_id
        return request

    def _sync_request(self, joined: JoinGroupResponse, assignments: dict[str, bytes]) -> SyncGroupRequest:
        return SyncGroupRequest(
            group_id=self._crew.join.group_id,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id=self.seen.instance_id,
            protocol_type=joined.protocol_type,
            protocol_name=joined.protocol_name,
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                for member_id, assignment in assignments.items()
            ],
        )

    async def _assign(self, joined: JoinGroupResponse) -> dict[str, bytes]:
        """The assignment of each member, by member id; {} if the member doesn't lead, or leads on after a restart."""
        if joined.leader != joined.member_id or joined.skip_assignment:
            return {}
        wanted = {
            (member.group_instance_id or "", member.member_id): decode_subscription(CONSUMER, member.metadata)
            or frozenset()
            for member in joined.members
        }
        topics = sorted(frozenset().union(*wanted.values()))
        answer: MetadataResponse = await self._ask(metadata_request(topics))
        counts = {topic.name: len(topic.partitions) for topic in answer.topics if topic.name is not None}
        return {member_id: encoded(given) for (_, member_id), given in ranges(counts, wanted).items()}

    async def _ask(self, request: Message) -> Any:
        """Send a request, once the member isn't silent, and return the response. Raises Unreachable."""
        await self._speaks.wait()
        assert self._link is not None
        within_s = self._crew.answer_within_s
        if isinstance(request, JoinGroupRequest):
            within_s += request.rebalance_timeout_ms / 1000
        return await self._link.ask(request, within_s)

    async def _pause_for(self, seconds: float) -> bool:
        """Wait, at most for `seconds`; return whether the member was nudged."""
        loop = asyncio.get_running_loop()
        self._pause = loop.create_future()
        timer = loop.call_later(seconds, self._wake, False)
        try:
            return await self._pause
        finally:
            timer.cancel()

    @staticmethod
    def _time_s() -> float:
        return asyncio.get_running_loop().time()

    def _wake(self, is_nudged: bool) -> None:  # noqa: FBT001  what the pause returns
        if self._pause is not None and not self._pause.done():
            self._pause.set_result(is_nudged)

    def _see(self, **changes: Any) -> None:
        self.seen = self.seen._replace(**changes)
        self._crew.changed()


class Crew:
    """The state that the members of a `fill` share: addresses, their JoinGroup, who waits in one, who waits for them.

    join: how each of them joins, but for its ids. client_id: of each connection. topics: what each subscribes to.
    kind: of the members. interval_s: the seconds between two heartbeats, in the consumer protocol at most.
    answer_within_s: how long a member waits for an answer; for that to a JoinGroup also the rebalance timeout.
    """

    def __init__(
        self,
        bootstrap: Sequence[Address],
        join: JoinGroupRequest,
        client_id: str,
        instance_ids: Iterable[str | None],
        topics: Sequence[str],
        kind: type[Life],
        *,
        interval_s: float,
        answer_within_s: float,
    ) -> None:
        self.join = join
        self.topics = topics
        self.interval_s = interval_s
        self.answer_within_s = answer_within_s
        self.lives = [kind(self, index, instance_id) for index, instance_id in enumerate(instance_ids)]
        self._bootstrap = bootstrap
        self._client_id = client_id
        self._connects = asyncio.Semaphore(CONNECTS_AT_ONCE)
        self._awaited = set(self.lives)
        self._assembled = asyncio.Event()
        self._entering: set[Life] = set()
        self._waiting: dict[asyncio.Future[int], int] = {}
        self._look_is_due = False

    async def begin(self) -> None:
        """Let all members begin."""
        for life in self.lives:
            life.start()

    async def end(self) -> None:
        """End all members."""
        for life in self.lives:
            await life.end()

    async def connect(self, address: Address | None) -> Link:
        """Connect to a node, None for any. Raises Unreachable."""
        addresses = self._bootstrap if address is None else [address]
        async with self._connects:
            for each in addresses[:-1]:
                with suppress(Unreachable):
                    return await Link.connect(each, self._client_id, self.answer_within_s)
            return await Link.connect(addresses[-1], self._client_id, self.answer_within_s)

    async def assemble(self, life: Life) -> None:
        """Wait until each member has found its coordinator once, or gave up: then all join at once."""
        self.give_up(life)
        await self._assembled.wait()

    def give_up(self, life: Life) -> None:
        """Let nobody wait for this member in `assemble`."""
        self._awaited.discard(life)
        if not self._awaited:
            self._assembled.set()

    def enters(self, life: Life) -> None:
        """Note that a member waits in a JoinGroup or SyncGroup."""
        if not self._entering:
            asyncio.get_running_loop().call_later(SOON_S, self._nudge_if_one_enters)
        self._entering.add(life)

    def entered(self, life: Life) -> None:
        """Note that it waits no more."""
        self._entering.discard(life)

    def first_pause_s(self, life: Life) -> float:
        """The seconds before the first heartbeat of a generation.

        Members that begin together don't send their heartbeats together.
        """
        return SOON_S if self._entering else self.interval_s * (life.index + 1) / len(self.lives)

    def nudge(self) -> None:
        """Let all members that have a seat send a heartbeat."""
        for life in self.lives:
            life.nudge()

    def _nudge_if_one_enters(self) -> None:
        if self._entering:
            self.nudge()

    def changed(self) -> None:
        """Note that a member changed. Those that wait look once for all changes of a moment."""
        if self._waiting and not self._look_is_due:
            self._look_is_due = True
            asyncio.get_running_loop().call_soon(self._look)

    async def seated(self, generation: int, within_s: float) -> int:
        """See Members.wait_until_seated."""
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting[future] = generation
        try:
            self._look()
            if not future.done():
                await asyncio.wait([future], timeout=within_s)
                self._look()  # the last change may not be looked at yet
            if future.done():
                return future.result()
        finally:
            del self._waiting[future]
        raise NotSeated(f"not within {within_s:g} s: {self._missing(generation)}")

    def _look(self) -> None:
        self._look_is_due = False
        refused = next((life for life in self.lives if life.refused), None)
        present = [life.seen for life in self.lives if life.takes_part]
        generations = {seen.generation if seen.doing is Doing.SEATED else -1 for seen in present}
        for future, at_least in self._waiting.items():
            if future.done():
                continue
            if refused is not None:
                future.set_exception(NotSeated(f"{refused.name}: {refused.refused}"))
            elif len(generations) == 1 and max(generations) >= at_least:
                future.set_result(max(generations))

    def _missing(self, generation: int) -> str:
        """Why `seated` waits on."""
        present = [life for life in self.lives if life.takes_part]
        if not present:
            return "no member takes part"
        newest = max(generation, *(life.seen.generation for life in present))
        late = [life for life in present if life.seen.doing is Doing.JOINING or life.seen.generation < newest]
        first = late[0]
        trouble = f", after {first.seen.trouble}" if first.seen.trouble else ""
        return (
            f"{len(late)} of {len(present)} members have no seat in generation {newest}: {first.name} is "
            f"{first.seen.doing}, its last generation is {first.seen.generation}{trouble}"
        )


def ranges(counts: Mapping[str, int], wanted: Mapping[Key, frozenset[str]]) -> dict[Key, dict[str, list[int]]]:
    """Each member's share, as Kafka's range assignor gives it: of each topic a range, the first members one more.

    counts: topic -> partitions. wanted: the topics of each member; members are served in the order of their keys.
    """
    given: dict[Key, dict[str, list[int]]] = {key: {} for key in wanted}
    for topic, count in counts.items():
        keys = sorted(key for key, topics in wanted.items() if topic in topics)
        each, more = divmod(count, max(len(keys), 1))
        start = 0
        for number, key in enumerate(keys):
            end = start + each + (number < more)
            if end > start:
                given[key][topic] = list(range(start, end))
            start = end
    return given


def encoded(assignment: Assignment) -> bytes:
    """An assignment as members read it."""
    topics = [
        ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=list(partitions))
        for topic, partitions in assignment.items()
    ]
    return VERSION + encode(ConsumerProtocolAssignment(assigned_partitions=topics, user_data=None), 0)
