"""A test bench for the pure core: the test controls time, ids, timers and the log.

    bench = Bench()
    a, b = bench.seated("a", "b")                 # joined, assigned, Stable
    again = a.restart()                           # a new process: an empty member id, the same instance id
    assert again.response.generation_id == 1      # answered at once, without a rebalance

`Bench` plays the runtime: it hands events to a `Coordinator`, carries out its timers (`advance` is the only clock),
keeps its records (`restart` builds the next coordinator from them) and finds the request of each answer. `Peer` plays a
program that takes part in a group and remembers the answers; `Call` is one of its requests. Every request and answer
passes the codec in the request's version, so that no test uses what the wire can't carry.

After every event the bench checks:

- `invariants.violations` of each group finds nothing.
- Each request gets one answer, and a member waits in it until then.
- A timer runs for exactly what the group waits for.
- The last record of a Stable or Empty group is the group.

House rule: the tests decide what a coordinator should answer, never the bench.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any, Generic, NamedTuple, TypeVar

from coordinator.config import GroupConfig, GroupSettings
from coordinator.group import events, records
from coordinator.group.classic.heartbeat import remember
from coordinator.group.client import Client, Now
from coordinator.group.coordinator import Coordinator
from coordinator.group.effects import Effects, TimerKey, TimerKind
from coordinator.group.group import NEVER, Group, Member
from coordinator.group.notes import Note, RebalanceStarted
from coordinator.group.replay import Replay
from coordinator.group.state import State
from protocol.messages import (
    ConsumerProtocolSubscription,
    DeleteGroupsResponse,
    DescribeGroupsResponse,
    GroupMetadataValue,
    HeartbeatResponse,
    JoinGroupResponse,
    LeaveGroupResponse,
    ListGroupsResponse,
    Message,
    OffsetCommitResponse,
    OffsetDeleteResponse,
    OffsetFetchResponse,
    SyncGroupResponse,
    decode,
    encode,
)
from protocol.records.batch import Record
from schemas.errors import ErrorCode
from tests.group.invariants import violations
from tests.support import requests

T = TypeVar("T")
N = TypeVar("N", bound=Note)

GROUP = "g"
SESSION_MS = 10_000
REBALANCE_MS = 60_000
INITIAL_DELAY_MS = 3_000
"""Kafka's default of group.initial.rebalance.delay.ms, which the bench keeps unless a test sets another."""
WALL_MS = 1_700_000_000_000
"""The Unix time at which the bench's own clock shows 0."""
FIRINGS_MAX = 10_000
"""More firings than any scenario has. Beyond this number, timers arm each other without end."""

VERSIONS_BESIDE = {0: (0, 0, 0, 2), 1: (1, 1, 1, 3), 2: (1, 1, 1, 3), 3: (1, 1, 1, 3), 4: (2, 2, 2, 6)} | {
    5: (3, 3, 3, 7),
    6: (4, 4, 4, 8),
    7: (5, 4, 4, 8),
    8: (5, 4, 5, 8),
    9: (5, 4, 5, 9),
}
"""Versions of SyncGroup, Heartbeat, LeaveGroup and OffsetCommit that a client uses with this version of JoinGroup."""
STATIC_HEARTBEAT_SINCE = 3
STATIC_SYNC_SINCE = 3
STATIC_LEAVE_SINCE = 3
STATIC_COMMIT_SINCE = 7
STATIC_JOIN_SINCE = 5
SYNC_NAMES_PROTOCOL_SINCE = 5

Protocols = Sequence[tuple[str, bytes]]


def subscription(*topics: str) -> bytes:
    """The metadata of a consumer that subscribes to `topics`: a version, then the subscription in it."""
    return b"\x00\x00" + encode(ConsumerProtocolSubscription(topics=list(topics), user_data=None), 0)


SOMEBODY = Client("client", "/127.0.0.1")
NOBODY = Client("", "")
"""The client of a request when it doesn't matter."""
RANGE: Protocols = (("range", subscription("t")),)


class Call(Generic[T]):
    """A request, and its answer after it came."""

    def __init__(self, event: Any, version: int, learn: Callable[[T], None] | None) -> None:
        self.request: str = event.request
        self.event = event
        self.version = version
        self._learn = learn
        self._answer: T | None = None
        self.lost = False

    @property
    def waits(self) -> bool:
        """Whether it has no answer yet, and its coordinator still runs."""
        return self._answer is None and not self.lost

    @property
    def response(self) -> T:
        """The answer; it must have come."""
        assert self._answer is not None, f"{self.request} is not answered"
        return self._answer

    @property
    def error(self) -> ErrorCode:
        """The error code on top of the answer."""
        code: int = self.response.error_code  # type: ignore[attr-defined]
        return ErrorCode(code)

    @property
    def errors(self) -> list[ErrorCode]:
        """The error codes of the answer's members (LeaveGroup) or partitions (OffsetCommit, OffsetDelete)."""
        body: Any = self.response
        rows = body.members if hasattr(body, "members") else [row for topic in body.topics for row in topic.partitions]
        return [ErrorCode(row.error_code) for row in rows]

    def answer(self, body: T) -> None:
        """Take the answer as the wire carries it."""
        assert self._answer is None, f"{self.request} is answered twice"
        assert not self.lost, f"{self.request} is answered by a coordinator that it was not sent to"
        self._answer = body if isinstance(body, events.Remainder) else over_wire(body, self.version)
        if self._learn is not None:
            self._learn(self._answer)

    def __repr__(self) -> str:
        return f"Call({self.request!r}, {'lost' if self.lost else self._answer})"


def over_wire(body: T, version: int) -> T:
    """A message, or a list of messages, after it was encoded and decoded in a version."""
    if isinstance(body, list):
        return [over_wire(part, version) for part in body]  # type: ignore[return-value]
    assert isinstance(body, Message)
    return decode(type(body), encode(body, version), version)


def whole_value(group: Group) -> bytes:
    """The value of a group's record from the schema alone, without the bytes that members keep."""
    name = group.protocol_name
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=name,
        leader=group.leader,
        current_state_timestamp=-1 if group.state_since_ms is None else group.state_since_ms,
        members=[
            GroupMetadataValue.MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(name or ""),
                assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )
    version = records.GROUP_VALUE_VERSION
    return version.to_bytes(2) + encode(value, version)


class Beat(NamedTuple):
    """The fields of a heartbeat."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int


class Bench:
    """A coordinator of one partition, and everything around it.

    settings: fields of GroupConfig; the others are Kafka's defaults.
    now_ms: time since the bench began.
    records: every record that was written.
    notes: every note.
    calls: all requests by name, in order.
    """

    def __init__(self, **settings: Any) -> None:
        self.config = replace(GroupConfig(), **settings)
        self.now_ms = 0
        self.records: list[Record] = []
        self.notes: list[Note] = []
        self.calls: dict[str, Call[Any]] = {}
        self.timers: dict[TimerKey, int] = {}
        self.beats: dict[Beat, Member] = {}
        self.peers: list[Peer] = []
        self.disk_fails = False
        self.group_configs: dict[str, GroupSettings] = {}
        self._fresh = count(1)
        self._names = count(1)
        self._start()

    # Time and the coordinator's life.

    @property
    def now(self) -> Now:
        """The time on both clocks."""
        return Now(self.now_ms, WALL_MS + self.now_ms)

    def advance(self, ms: int) -> None:
        """Let time pass; each timer fires at its own time, in order."""
        until_ms = self.now_ms + ms
        for _ in range(FIRINGS_MAX):
            due = [(at_ms, order) for order, at_ms in enumerate(self.timers.values()) if at_ms <= until_ms]
            if not due:
                self.now_ms = until_ms
                return
            at_ms, order = min(due)
            key = list(self.timers)[order]
            del self.timers[key]
            self.now_ms = max(self.now_ms, at_ms)
            self.handle(events.TimerFired(key))
        raise AssertionError(f"timers without end: {self.timers}")

    def seats(self, size: int, group: str = GROUP) -> None:
        """Set target.group.size of a group."""
        self.group_configs = {
            **self.group_configs,
            group: self.config.group_settings._replace(target_size=size),
        }
        self.coordinator.group_configs = self.group_configs
        self.handle(events.GroupSettingsChanged(group))

    def restart(self, **settings: Any) -> None:
        """Crash, and start again from the log, perhaps with other settings; waiting requests get no answer."""
        self.config = replace(self.config, **settings)
        for call in self.calls.values():
            call.lost = call.lost or call.waits
        self._start()

    def configure(self, group: str = GROUP, **own: Any) -> None:
        """Give a group settings of its own in place of those that it has; none: take them away."""
        before = self.group_configs.pop(group, self.config.group_settings).expected
        if own:
            self.group_configs[group] = self.config.group_settings._replace(**own)
        after = own.get("expected", ())
        dropped = sorted(set(before).difference(after)) if after else ()
        self.handle(events.GroupSettingsChanged(group, dropped))

    def unload(self) -> None:
        """Unload the partition: another node takes it."""
        self.handle(events.Unload())
        self.timers.clear()

    @contextmanager
    def failing_disk(self) -> Iterator[None]:
        """Let every write fail meanwhile: an event with records fails, as it does in the runtime."""
        self.disk_fails = True
        yield
        self.disk_fails = False

    def _start(self) -> None:
        self.coordinator = Coordinator(0, self.config)
        self.coordinator.group_configs = self.group_configs
        self.timers.clear()
        self.beats.clear()
        replay = Replay()
        replay.add(self.records)
        self.handle(events.Load({group.group_id: group for group in replay.groups()}))

    # Events.

    def handle(self, event: events.Event) -> Effects:
        """Hand in an event, carry out the effects, and check what must always hold."""
        effects = self.coordinator.handle(event, self.now)
        if effects.records and self.disk_fails:
            self._fail(event)
        else:
            self._carry_out(effects)
        self._check()
        return effects

    def _carry_out(self, effects: Effects) -> None:
        self.records += effects.records
        # The core makes some notes without their constructor (`speed.new`).
        assert all(len(note) == len(note.FIELDS) for note in effects.notes)
        self.notes += effects.notes
        for key, at_ms in effects.timers:
            self.timers.pop(key, None)
            if at_ms is not None:
                assert at_ms >= self.now_ms, f"{key} was due {self.now_ms - at_ms} ms ago"
                self.timers[key] = at_ms
        for response in effects.responses:
            self.calls[str(response.request)].answer(response.body)

    def _fail(self, event: Any) -> None:
        """Do what the runtime does when records can't become durable: drop the effects and the coordinator."""
        assert not isinstance(event, events.TimerFired), "let the disk fail around a request"
        self.calls[event.request].answer(event.refused(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        self.restart()

    def _ask(self, event: Any, version: int, learn: Callable[[Any], None] | None = None) -> Call[Any]:
        """Hand in a request, under a name of its own."""
        event.request = f"{type(event).__name__} {next(self._names)}"
        call: Call[Any] = Call(event, version, learn)
        self.calls[event.request] = call
        self.handle(event)
        return call

    def join(
        self,
        *,
        group: str = GROUP,
        member: str = "",
        instance: str | None = None,
        version: int = 5,
        protocol_type: str = "consumer",
        protocols: Protocols = RANGE,
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        reason: str | None = None,
        join_reason: int = -1,
        client: Client = SOMEBODY,
        learn: Callable[[JoinGroupResponse], None] | None = None,
    ) -> Call[JoinGroupResponse]:
        """JoinGroup."""
        times = {"session_ms": session_ms, "rebalance_ms": rebalance_ms}
        said = {"protocol_type": protocol_type, "protocols": protocols, "reason": reason, "join_reason": join_reason}
        body = requests.join_request(group, member, instance, **times, **said)  # type: ignore[arg-type]
        fresh_id = f"{next(self._fresh):04}"
        event = events.JoinGroup("", version, client, over_wire(body, version), fresh_id)
        return self._ask(event, version, learn)

    def sync(
        self,
        *,
        group: str = GROUP,
        member: str,
        generation: int,
        instance: str | None = None,
        version: int = 3,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
        assignments: Mapping[str, bytes] | None = None,
        learn: Callable[[SyncGroupResponse], None] | None = None,
    ) -> Call[SyncGroupResponse]:
        """SyncGroup; `assignments` by member id, which only the leader sends."""
        names = {"protocol_type": protocol_type, "protocol_name": protocol_name}
        body = requests.sync_request(group, generation, member, instance, assignments, **names)
        return self._ask(events.SyncGroup("", version, NOBODY, over_wire(body, version)), version, learn)

    def heartbeat(
        self, *, group: str = GROUP, member: str, generation: int, instance: str | None = None, version: int = 3
    ) -> Call[HeartbeatResponse]:
        """Heartbeat, on the short way and as an event, which must agree; the member keeps one that gets NONE."""
        body = requests.heartbeat_request(group, generation, member, instance)
        fast = self.coordinator.heartbeat(group, member, instance, generation, self.now_ms)
        call: Call[HeartbeatResponse] = self._ask(events.Heartbeat("", over_wire(body, version)), version)
        assert call.error == fast
        if fast == ErrorCode.NONE and member in self.coordinator.groups[group].members:
            found = self.coordinator.groups[group]
            beat = Beat(group, member, instance, generation)
            self.beats[beat] = found.members[member]
            remember(found, found.members[member], beat)
        return call

    def leave(
        self,
        *,
        group: str = GROUP,
        members: Iterable[tuple[str, str | None]] = (),
        member: str = "",
        version: int = 3,
        reason: str | None = None,
    ) -> Call[LeaveGroupResponse]:
        """LeaveGroup: from v3 on with `members` as (member id, instance id), before v3 with `member`."""
        body = requests.leave_request(group, *members, member_id=member, reason=reason)
        return self._ask(events.LeaveGroup("", version, NOBODY, over_wire(body, version)), version)

    def commit(
        self,
        *,
        group: str = GROUP,
        member: str = "",
        generation: int = -1,
        instance: str | None = None,
        version: int = 7,
        offsets: Mapping[tuple[str, int], int],
        metadata: str | None = "",
        retention_ms: int = -1,
    ) -> Call[OffsetCommitResponse]:
        """OffsetCommit; `offsets` by topic and partition."""
        who = generation, member, instance, metadata
        body = requests.commit_request(group, offsets, *who, retention_time_ms=retention_ms)
        return self._ask(events.CommitOffsets("", version, NOBODY, over_wire(body, version)), version)

    def fetch(
        self, *, group: str = GROUP, topics: Mapping[str, Sequence[int]] | None = None, require_stable: bool = False
    ) -> Call[OffsetFetchResponse.OffsetFetchResponseGroup]:
        """OffsetFetch of partitions by topic; None fetches all."""
        asked: Any = requests.offsets_request(group, topics)
        return self._ask(events.FetchOffsets("", group, asked.topics, require_stable), 8)

    def delete_offsets(self, *, group: str = GROUP, topics: Mapping[str, Sequence[int]]) -> Call[OffsetDeleteResponse]:
        """OffsetDelete of partitions by topic."""
        body = requests.delete_offsets_request(group, topics)
        return self._ask(events.DeleteOffsets("", over_wire(body, 0)), 0)

    def describe(
        self, *, group: str = GROUP, version: int = 5, waiting: bool = False
    ) -> Call[DescribeGroupsResponse.DescribedGroup]:
        """DescribeGroups of one group."""
        return self._ask(events.DescribeGroup("", version, group, waiting), version)

    def delete(self, *, group: str = GROUP) -> Call[DeleteGroupsResponse.DeletableGroupResult]:
        """DeleteGroups of one group."""
        return self._ask(events.DeleteGroup("", group), 2)

    def erase(self, remainder: events.Remainder, *, group: str = GROUP) -> None:
        """Erase all offsets of a deleted group that are left, in one piece."""
        left = [(topic, index, each) for topic, held in remainder.offsets.items() for index, each in held.items()]
        call: Call[DeleteGroupsResponse.DeletableGroupResult] = self._ask(events.EraseOffsets("", group, left), 2)
        assert call.response.error_code == ErrorCode.NONE

    def list_groups(
        self, *, states: Iterable[str] = (), types: Iterable[str] = ()
    ) -> Call[list[ListGroupsResponse.ListedGroup]]:
        """ListGroups."""
        return self._ask(events.ListGroups("", list(states), list(types)), 5)

    def remove_expired(self) -> None:
        """Let the core remove expired offsets, as it does every offsets.retention.check.interval.ms."""
        for event in self.coordinator.offsets_in(None):
            if event is not None:
                self.handle(event)

    # Views for tests.

    @property
    def rebalances(self) -> int:
        """How often a group went to PreparingRebalance."""
        return len(self.said(RebalanceStarted))

    def said(self, kind: type[N]) -> list[N]:
        """All notes of a kind."""
        return [note for note in self.notes if isinstance(note, kind)]

    def group(self, group: str = GROUP) -> Group:
        """A group as the coordinator holds it."""
        found: Group = self.coordinator.groups[group]
        return found

    def state(self, group: str = GROUP) -> str:
        """The group's state as DescribeGroups shows it."""
        return self.describe(group=group).response.group_state

    def member_ids(self, group: str = GROUP) -> dict[str | None, str]:
        """Member ids by instance id, as DescribeGroups shows them, without dynamic members."""
        members = self.describe(group=group).response.members
        return {member.group_instance_id: member.member_id for member in members if member.group_instance_id}

    def committed(self, topic: str, partition: int, group: str = GROUP) -> int:
        """The committed offset as OffsetFetch returns it; -1 if there is none."""
        return self.fetch(group=group, topics={topic: [partition]}).response.topics[0].partitions[0].committed_offset

    def written(self, group: str = GROUP) -> list[GroupMetadataValue | None]:
        """Every value in the log for a group; None for a tombstone."""
        key = records.group_key(group)
        return [
            None if value is None else decode(GroupMetadataValue, value, int.from_bytes(value[:2]), 2)
            for record_key, value, _ in self.records
            if record_key == key
        ]

    # Peers.

    def static(self, instance: str, **says: Any) -> Peer:
        """A program with an instance id."""
        return self.peer(instance, instance=instance, **says)

    def dynamic(self, name: str, **says: Any) -> Peer:
        """A program without an instance id."""
        return self.peer(name, instance=None, **says)

    def peer(self, name: str, **says: Any) -> Peer:
        """A program that takes part in a group; `says` are the arguments of `join` for all of its requests."""
        peer = Peer(self, name, **says)
        self.peers.append(peer)
        return peer

    def seated(self, *instances: str, **says: Any) -> list[Peer]:
        """A Stable group of generation 1 with these instance ids; the first one leads."""
        peers = [self.static(instance, **says) for instance in instances]
        self.settle(*peers)
        return peers

    def settle(self, *peers: Peer) -> None:
        """Join all peers, assign to each its name, and sync all: the group becomes Stable."""
        joins = [peer.enter() for peer in peers]
        for _ in range(len(peers) + 1):
            if any(join.waits for join in joins):
                self.advance(self.config.group_initial_rebalance_delay_ms)
        self.assign(*peers)
        assert self.state(peers[0].says["group"]) == State.STABLE.value

    def assign(self, *peers: Peer) -> None:
        """Sync peers that have joined, first the leader with the assignments."""
        for peer in sorted(peers, key=lambda peer: not peer.leads):
            synced = peer.sync()
            assert synced.error is ErrorCode.NONE, (peer.name, synced)

    # Checks after every event.

    def _check(self) -> None:
        groups = self.coordinator.groups.values()
        for group in groups:
            broken = violations(group)
            assert not broken, (group, broken)
        members = [member for group in groups for member in group.members.values()]
        held = [
            str(waiting.request)
            for member in members
            for waiting in (member.awaiting_join, member.awaiting_sync)
            if waiting
        ]
        held += [
            str(standby.member.awaiting_join.request)
            for group in groups
            for standby in group.standbys.values()
            if standby.member.awaiting_join
        ]
        arrivals = [group.arrivals for group in groups if isinstance(group, Group) and group.arrivals is not None]
        held += [str(join.event.request) for each in arrivals for join in each.held.values()]
        assert sorted(held) == sorted(name for name, call in self.calls.items() if call.waits)
        for beat, member in self.beats.items():
            assert member.beat != beat or self._holds(beat, member), f"{beat} would get a yes"
        if all(group.state is not State.DEAD for group in groups):
            self._check_timers(groups)
            self._check_log(groups)

    def _holds(self, beat: Beat, member: Member) -> bool:
        """Whether `member` may send this heartbeat and get NONE."""
        group = self.coordinator.groups.get(beat.group_id)
        return (
            group is not None
            and group.state in (State.COMPLETING_REBALANCE, State.STABLE)
            and group.members.get(beat.member_id) is member
            and beat.instance_id in (None, member.group_instance_id)
            and beat.generation == group.generation
        )

    def _check_timers(self, groups: Iterable[Group]) -> None:
        wanted: set[TimerKey] = set()
        for group in groups:
            wanted |= {TimerKey(TimerKind.PENDING, group.group_id, member_id) for member_id in group.pending}
            wanted |= {
                TimerKey(TimerKind.SESSION, group.group_id, member.member_id)
                for member in group.members.values()
                if member.timer_at_ms != NEVER
            }
            wanted |= {
                TimerKey(TimerKind.SESSION, group.group_id, member_id)
                for member_id, standby in group.standbys.items()
                if standby.member.timer_at_ms != NEVER
            }
            if group.state is State.PREPARING_REBALANCE:
                wanted.add(TimerKey(TimerKind.REBALANCE, group.group_id))
            if group.pending_sync:
                wanted.add(TimerKey(TimerKind.SYNC, group.group_id))
            if group.arrivals is not None and group.arrivals.timer_at_ms is not None:
                wanted.add(TimerKey(TimerKind.ARRIVALS, group.group_id))
        assert self.timers.keys() == wanted

    def _check_log(self, groups: Iterable[Group]) -> None:
        last = {key: value for key, value, _ in self.records}
        for group in groups:
            if group.state in (State.STABLE, State.EMPTY) and group.generation > 0:
                value = whole_value(group)
                assert last[records.group_key(group.group_id)] == value, f"{group} is not what its last record says"


class Peer:
    """A program that takes part in a group, and remembers the answers.

    says: arguments of `Bench.join` for each JoinGroup.
    member_id, generation: from its last answers; "" and -1 before.
    assignment: from its last SyncGroup.
    """

    def __init__(self, bench: Bench, name: str, **says: Any) -> None:
        self.bench = bench
        self.name = name
        self.says: dict[str, Any] = {
            "group": GROUP,
            "instance": None,
            "version": 5,
            "client": Client(name, "/127.0.0.1"),
            **says,
        }
        self.member_id = ""
        self.generation = -1
        self.assignment: bytes | None = None
        self.joined: JoinGroupResponse | None = None

    def __repr__(self) -> str:
        return f"Peer({self.name!r}, {self.member_id!r})"

    @property
    def version(self) -> int:
        """The version of JoinGroup that the program uses."""
        version: int = self.says["version"]
        return version

    @property
    def leads(self) -> bool:
        """Whether the last JoinGroup made it the leader, without skip_assignment."""
        return self.joined is not None and self.joined.leader == self.member_id and not self.joined.skip_assignment

    def join(self, **other: Any) -> Call[JoinGroupResponse]:
        """JoinGroup with its member id; `other` replaces arguments of `says`."""
        says = {**self.says, **other}
        if says["version"] < STATIC_JOIN_SINCE:
            says["instance"] = None
        return self.bench.join(**{"member": self.member_id, **says}, learn=self._learn_join)

    def enter(self, **other: Any) -> Call[JoinGroupResponse]:
        """JoinGroup, and a second one with the member id if the answer asks for it (KIP-394)."""
        joined = self.join(**other)
        if not joined.waits and joined.error is ErrorCode.MEMBER_ID_REQUIRED:
            joined = self.join(**other)
        return joined

    def restart(self, **other: Any) -> Call[JoinGroupResponse]:
        """Start a new process in its place, which knows its configuration only, and join."""
        self.member_id, self.generation, self.joined, self.assignment = "", -1, None, None
        return self.enter(**other)

    def twin(self) -> Peer:
        """Another process with the same configuration; it has not joined yet."""
        return self.bench.peer(self.name, **self.says)

    def sync(self, assignments: Mapping[str, bytes] | None = None, **other: Any) -> Call[SyncGroupResponse]:
        """SyncGroup; without `assignments` a leader assigns to each member the name of its peer."""
        version = VERSIONS_BESIDE[self.version][0]
        if assignments is None and self.leads:
            assert self.joined is not None
            names = {peer.member_id: peer.name for peer in self.bench.peers}
            assignments = {member.member_id: names[member.member_id].encode() for member in self.joined.members}
        if version >= SYNC_NAMES_PROTOCOL_SINCE and self.joined is not None:
            other = {"protocol_type": self.joined.protocol_type, "protocol_name": self.joined.protocol_name, **other}
        asked = self._as_member(version, STATIC_SYNC_SINCE, other)
        return self.bench.sync(assignments=assignments, learn=self._learn_sync, **asked)

    def heartbeat(self, **other: Any) -> Call[HeartbeatResponse]:
        """Heartbeat."""
        return self.bench.heartbeat(**self._as_member(VERSIONS_BESIDE[self.version][1], STATIC_HEARTBEAT_SINCE, other))

    def leave(self, reason: str | None = None) -> Call[LeaveGroupResponse]:
        """LeaveGroup for itself, as a consumer sends it."""
        version = VERSIONS_BESIDE[self.version][2]
        group = self.says["group"]
        if version < STATIC_LEAVE_SINCE:
            return self.bench.leave(group=group, member=self.member_id, version=version)
        members = [(self.member_id, self.says["instance"])]
        return self.bench.leave(group=group, members=members, version=version, reason=reason)

    def commit(self, offset: int, **other: Any) -> Call[OffsetCommitResponse]:
        """OffsetCommit of an offset for partition 0 of topic t."""
        asked = self._as_member(VERSIONS_BESIDE[self.version][3], STATIC_COMMIT_SINCE, other)
        return self.bench.commit(**{"offsets": {("t", 0): offset}, **asked})

    def _as_member(self, version: int, static_since: int, other: Mapping[str, Any]) -> dict[str, Any]:
        """The fields that all of its requests share; versions before `static_since` have no instance id."""
        return {
            "group": self.says["group"],
            "member": self.member_id,
            "generation": self.generation,
            "instance": self.says["instance"] if version >= static_since else None,
            "version": version,
            **other,
        }

    def _learn_join(self, response: JoinGroupResponse) -> None:
        if response.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.member_id = response.member_id
        if response.error_code == ErrorCode.NONE:
            self.joined, self.generation = response, response.generation_id

    def _learn_sync(self, response: SyncGroupResponse) -> None:
        if response.error_code == ErrorCode.NONE:
            self.assignment = response.assignment
