"""Members without clients: they fill a group that no test wants to start as processes.

    with fill(bootstrap, "workers", 99) as members:
        generation = members.wait_until_seated()
        members.restart(7)                                # a new connection, the same instance id, no member id
        assert members.wait_until_seated() == generation  # nothing moved

Each member has a connection of its own and lives as a consumer does: it finds its coordinator, joins, syncs and sends
heartbeats. It joins again when the group rebalances, and connects again when its connection is lost. A leader assigns
ranges of partitions. Members neither fetch nor commit.

All members of a `fill` run on one event loop, in one thread. While one of them waits in a JoinGroup, the others send
heartbeats soon and not only after their interval: a rebalance of 100 members takes milliseconds. Real consumers don't
know of each other, and take up to an interval.

All calls block, and any thread may make them.

House rule: a member never acts for another one; what one learns only makes the others ask the coordinator sooner.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from threading import Lock
from types import TracebackType
from typing import Any, Self, TypedDict, TypeVar

from coordinator.client.client import parse_addresses
from coordinator.client.connection import Address
from coordinator.client.errors import Unreachable
from coordinator.group.notes import CLASSIC
from coordinator.testing.consumer_life import ConsumerLife
from coordinator.testing.forks import FORKED, Held, hold
from coordinator.testing.link import Link
from coordinator.testing.loop_thread import LoopThread
from coordinator.testing.member import SOON_S, VERSION, Doing, Life, Member
from protocol.consumer import CONSUMER
from protocol.messages import ConsumerProtocolSubscription, JoinGroupRequest, encode

SESSION_TIMEOUT_MS = 45_000
HEARTBEAT_INTERVAL_MS = 3_000
REBALANCE_TIMEOUT_MS = 300_000
REQUEST_TIMEOUT_MS = 30_000
"""Defaults of Kafka's consumer: session.timeout.ms, heartbeat.interval.ms, max.poll.interval.ms, request.timeout.ms."""
ASSIGNORS = ("range", "roundrobin")
"""The protocol names that each member offers: real consumers of the group have one of them."""
CONNECTS_AT_ONCE = 32
"""Connections that wait for the server at the same time; Kafka accepts 50."""
LIVES: dict[str, type[Life]] = {CLASSIC: Life, CONSUMER: ConsumerLife}
"""By protocol."""
MEMBERS_MAX = 10_000
"""Members of one fill: each is an open file, and another one if its server is in the same process."""
WITHIN_S = 30.0
"""How long a call waits for the members, in seconds, unless its caller says otherwise."""

Result = TypeVar("Result")


class NotSeated(Exception):
    """The members didn't come to their seats in time, or a coordinator refused one; `str()` names the first of them."""


class FillOptions(TypedDict, total=False):
    """The further arguments of `fill`."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    rebalance_timeout_ms: int
    request_timeout_ms: int
    client_id: str
    protocol: str


def fill(
    bootstrap: str,
    group_id: str,
    count: int,
    *,
    static: bool = True,
    topics: Iterable[str] = (),
    session_timeout_ms: int = SESSION_TIMEOUT_MS,
    heartbeat_interval_ms: int = HEARTBEAT_INTERVAL_MS,
    rebalance_timeout_ms: int = REBALANCE_TIMEOUT_MS,
    request_timeout_ms: int = REQUEST_TIMEOUT_MS,
    client_id: str = "member",
    protocol: str = CLASSIC,
) -> Members:
    """Let `count` members join a group; returns before they have joined.

    bootstrap: HOST:PORT, several separated by commas; raises ValueError for anything else.
    static: the members have the instance ids `client_id`-0, `client_id`-1, ... Another `fill` of the same group needs
    another `client_id`, or it takes their seats.
    topics: those that each member subscribes to.
    request_timeout_ms: after this time without an answer a member connects again; an answer to a JoinGroup may take the
    rebalance timeout longer.
    protocol: `classic`, or `consumer` (KIP-848): there the server has the session timeout, and a member that restarts
    says before that it will be back.

    Each member is an open file of this process.
    """
    if not 1 <= count <= MEMBERS_MAX:
        raise ValueError(f"a group is filled with 1 to {MEMBERS_MAX} members, not {count}")
    if protocol not in LIVES:
        raise ValueError(f"members speak {' or '.join(LIVES)}, not {protocol}")
    names = sorted(topics)
    subscription = ConsumerProtocolSubscription(topics=names, user_data=None)
    metadata = VERSION + encode(subscription, 0)
    join = JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
        protocol_type=CONSUMER,
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=metadata) for name in ASSIGNORS],
    )
    instance_ids = [f"{client_id}-{index}" if static else None for index in range(count)]
    crew = _Crew(parse_addresses(bootstrap), join, client_id, instance_ids, names, LIVES[protocol])
    crew.interval_s = heartbeat_interval_ms / 1000
    crew.answer_within_s = request_timeout_ms / 1000
    return Members(crew)


class Members:
    """The members that `fill` made, by index. After `stop` they can be read; other calls raise RuntimeError."""

    def __init__(self, crew: _Crew) -> None:
        self._crew = crew
        self._stopping = Lock()
        self._thread: LoopThread | None = LoopThread(f"members of {crew.join.group_id}")
        self._over = "these members were stopped"
        hold(self)
        self._thread.run(crew.begin())

    def __len__(self) -> int:
        return len(self._crew.lives)

    def __getitem__(self, index: int) -> Member:
        return self._crew.lives[index].seen

    def __iter__(self) -> Iterator[Member]:
        return iter([life.seen for life in self._crew.lives])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def wait_until_seated(
        self, generation: int = 0, *, within_s: float = WITHIN_S, guard: Callable[[], None] | None = None
    ) -> int:
        """Wait until all members have a seat in one generation, `generation` or a later one; return it.

        Members that are silent, left or were fenced don't count. guard: as of `Group.wait_until`. Raises NotSeated.
        """
        return self._do(self._crew.seated(generation, within_s), guard)

    def restart(self, index: int, *, guard: Callable[[], None] | None = None) -> None:
        """End a member without a LeaveGroup, and let it join as a new process does: with its instance id alone.

        A member that left, fell silent or was fenced begins anew. Returns before the member has joined.
        """
        self._do(self._crew.lives[index].restart(), guard)

    def fall_silent(self, index: int) -> None:
        """Let a member send nothing while its connection stays: a process that hangs.

        The group waits for it until its session timeout, and in a rebalance until its rebalance timeout.
        """
        self._call(self._crew.lives[index].fall_silent)

    def speak_again(self, index: int) -> None:
        """Let a silent member go on where it was, with a heartbeat if it had a seat."""
        self._call(self._crew.lives[index].speak_again)

    def leave(self, index: int, *, guard: Callable[[], None] | None = None) -> None:
        """Let a member leave with a LeaveGroup, and wait for the answer.

        Raises Refused or Unreachable of coordinator.client.errors.
        """
        self._do(self._crew.lives[index].leave(), guard)

    def be_slow(self, index: int, seconds: float) -> None:
        """From now on a member that hears of a rebalance joins it `seconds` later; 0 undoes it.

        Until then it sends heartbeats, as a consumer does that still works on its records.
        """

        def be_slow(life: Life) -> None:
            life.slow_s = seconds
            life.nudge()

        self._call(partial(be_slow, self._crew.lives[index]))

    def stop(self) -> None:
        """Close all connections without a LeaveGroup, and end the thread; a second call does nothing."""
        with self._stopping:
            thread, self._thread = self._thread, None
            if thread is not None:
                thread.run(self._crew.end())
                thread.end()

    def let_go(self) -> Held:
        """See forks.Holder: in a process that a test forks, these members are stopped. Their connections let go too."""
        if self._thread is not None:
            self._thread, self._over = None, FORKED
        self._stopping = Lock()
        return Held()

    @property
    def are_stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._thread is None

    def _do(self, work: Coroutine[Any, Any, Result], guard: Callable[[], None] | None = None) -> Result:
        """Run a coroutine on the loop and return its result. Raises RuntimeError after `stop`."""
        if self._thread is None:
            work.close()
            raise RuntimeError(self._over)
        return self._thread.run(work, guard)

    def _call(self, function: Callable[[], Result]) -> Result:
        """Call a function on the loop and return its result."""

        async def call() -> Result:
            return function()

        return self._do(call())


class _Crew:
    """The state that the members share: addresses, their JoinGroup, who waits in one, who waits for them.

    client_id: of each connection; static members have it in their instance ids.
    """

    def __init__(
        self,
        bootstrap: Sequence[Address],
        join: JoinGroupRequest,
        client_id: str,
        instance_ids: Iterable[str | None],
        topics: Sequence[str],
        kind: type[Life],
    ) -> None:
        self.join = join
        self.topics = topics
        self.interval_s = HEARTBEAT_INTERVAL_MS / 1000
        self.answer_within_s = REQUEST_TIMEOUT_MS / 1000
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
        """See Crew."""
        addresses = self._bootstrap if address is None else [address]
        async with self._connects:
            for each in addresses[:-1]:
                with suppress(Unreachable):
                    return await Link.connect(each, self._client_id, self.answer_within_s)
            return await Link.connect(addresses[-1], self._client_id, self.answer_within_s)

    async def assemble(self, life: Life) -> None:
        """See Crew."""
        self.give_up(life)
        await self._assembled.wait()

    def give_up(self, life: Life) -> None:
        """See Crew."""
        self._awaited.discard(life)
        if not self._awaited:
            self._assembled.set()

    def enters(self, life: Life) -> None:
        """See Crew."""
        if not self._entering:
            asyncio.get_running_loop().call_later(SOON_S, self._nudge_if_one_enters)
        self._entering.add(life)

    def entered(self, life: Life) -> None:
        """See Crew."""
        self._entering.discard(life)

    def first_pause_s(self, life: Life) -> float:
        """See Crew. Members that begin together don't send their heartbeats together."""
        return SOON_S if self._entering else self.interval_s * (life.index + 1) / len(self.lives)

    def nudge(self) -> None:
        """See Crew."""
        for life in self.lives:
            life.nudge()

    def _nudge_if_one_enters(self) -> None:
        if self._entering:
            self.nudge()

    def changed(self) -> None:
        """See Crew. Those that wait look once for all changes of a moment."""
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
