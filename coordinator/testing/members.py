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

from collections.abc import Callable, Coroutine, Iterable, Iterator
from functools import partial
from threading import Lock
from typing import Any, Self, TypedDict, TypeVar

from coordinator.client.client import parse_addresses
from coordinator.group.notes import CLASSIC
from coordinator.testing.consumer_life import ConsumerLife
from coordinator.testing.forks import FORKED, Held, hold
from coordinator.testing.loop_thread import LoopThread
from coordinator.testing.member import VERSION, Crew, Life, Member
from protocol.consumer import CONSUMER
from protocol.messages import ConsumerProtocolSubscription, JoinGroupRequest, encode

SESSION_TIMEOUT_MS = 45_000
HEARTBEAT_INTERVAL_MS = 3_000
REBALANCE_TIMEOUT_MS = 300_000
REQUEST_TIMEOUT_MS = 30_000
"""Defaults of Kafka's consumer: session.timeout.ms, heartbeat.interval.ms, max.poll.interval.ms, request.timeout.ms."""
ASSIGNORS = ("range", "roundrobin")
"""The protocol names that each member offers: real consumers of the group have one of them."""
LIVES: dict[str, type[Life]] = {CLASSIC: Life, CONSUMER: ConsumerLife}
"""By protocol."""
MEMBERS_MAX = 10_000
"""Members of one fill: each is an open file, and another one if its server is in the same process."""
WITHIN_S = 30.0
"""How long a call waits for the members, in seconds, unless its caller says otherwise."""

Result = TypeVar("Result")


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
    crew = Crew(
        parse_addresses(bootstrap),
        join,
        client_id,
        instance_ids,
        names,
        LIVES[protocol],
        interval_s=heartbeat_interval_ms / 1000,
        answer_within_s=request_timeout_ms / 1000,
    )
    return Members(crew)


class Members:
    """The members that `fill` made, by index. After `stop` they can be read; other calls raise RuntimeError."""

    def __init__(self, crew: Crew) -> None:
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

    def __exit__(self, *_: object) -> None:
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
