"""A play of groups of the consumer protocol on the core alone, with a clock and topics of its own.

Members of the classic protocol can play too, in classic groups and beside the others. After each event it checks what
must always hold (`check`): nobody shares a partition, epochs never fall, and the records so far make the same group
again. A heartbeat that a server could answer like the one before it (`consumer.steady`) must have no effect and the
same answer; repeated: how many could.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from coordinator.config import GroupConfig
from coordinator.group.client import Client, Now
from coordinator.group.consumer.describe import Description, described
from coordinator.group.coordinator import Coordinator
from coordinator.group.effects import Resolution, TimerKey
from coordinator.group.events import (
    CommitOffsets,
    ConsumerHeartbeat,
    DeleteGroup,
    DescribeConsumerGroup,
    FetchOffsets,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Load,
    RegexResolved,
    SyncGroup,
    TargetMade,
    TimerFired,
    TopicsChanged,
)
from coordinator.group.group import Group
from coordinator.group.records import group_value
from coordinator.group.replay import Replay
from coordinator.group.state import Kind, State
from coordinator.group.topics import TopicImage, TopicTable
from coordinator.log.cluster.writer import DIVISIBLE
from protocol.consumer import decode_assignment
from protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    OffsetFetchRequest,
    encode,
)
from protocol.records.packing import stored_bytes
from tests.group.invariants import violations
from tests.support.requests import commit_request, heartbeat_request, join_request, leave_request, sync_request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coordinator.group.consumer.group import ConsumerGroup
    from coordinator.group.consumer.steady import Steady
    from coordinator.group.notes import Note
    from protocol.records.batch import Record

GROUP = "g"
FRESH = "00112233-4455-6677-8899-aabbccddeeff"
CLIENT = Client("test", "/127.0.0.1")
GONE: Any = object()
"""In place of an event: the work is done."""

Owned = dict[str, list[int]]
"""Partitions by the name of their topic."""


def topic_id(name: str) -> UUID:
    """The id of a topic."""
    return UUID(bytes=name.encode().ljust(16, b"\0"))


class Play:
    """A coordinator with topics, time and a log.

    topics: partitions by name. settings: of GroupConfig; each epoch has its target at once unless they say otherwise.
    """

    def __init__(self, topics: dict[str, int] | None = None, **settings: Any) -> None:
        intervals = {"group_consumer_assignment_interval_ms": 0, "group_initial_rebalance_delay_ms": 0}
        self.config = GroupConfig(**{**intervals, **settings})
        self.coordinator = Coordinator(0, self.config)
        self.ms = 1_000
        self.version = 0
        self.fresh = 0
        self.log: list[Record] = []
        self.notes: list[Note] = []
        self.timers: dict[TimerKey, int] = {}
        self.asked: list[Resolution] = []
        self.works: list[Iterator[TargetMade | None]] = []
        self.answers: dict[str, Any] = {}
        self.topics: dict[str, int] = {}
        self.repeated = 0
        self._kept: dict[str, tuple[ConsumerGroupHeartbeatRequest, Steady, Any]] = {}
        self._epochs: dict[str, tuple[Kind, int, int]] = {}
        self._replayed: tuple[list[Record], dict[str, Any]] = ([], {})
        self.set_topics(**({"t": 4} if topics is None else topics))

    def now(self) -> Now:
        """The time on both clocks."""
        return Now(self.ms, 1_600_000_000_000 + self.ms)

    def handle(self, event: Any) -> Any:
        """Handle an event; its answer, if it has one at once. `answers` has all answers by request."""
        effects = self.coordinator.handle(event, self.now())
        self._check_stored(effects.records)
        self.log += effects.records
        self.notes += effects.notes
        self.asked += effects.resolutions
        self.works += [self.coordinator.target_of(group_id) for group_id in effects.assigning]
        for key, at_ms in effects.timers:
            if at_ms is None:
                self.timers.pop(key, None)
            else:
                self.timers[key] = at_ms
        answered = {str(response.request): response.body for response in effects.responses}
        assert len(answered) == len(effects.responses)
        self.answers |= answered
        self.check()
        return answered.get(getattr(event, "request", ""))

    def set_topics(self, **topics: int) -> None:
        """Create topics, or give them more partitions; 0 deletes one."""
        created = any(name not in self.topics for name in topics)
        self.topics = {name: count for name, count in {**self.topics, **topics}.items() if count}
        self.version += 1
        images = [TopicImage(topic_id(name), name, count) for name, count in self.topics.items()]
        self.handle(TopicsChanged(TopicTable(images, self.version, self.version if created else 0), set(topics)))

    def configure(self, **settings: Any) -> None:
        """Change settings of GroupConfig."""
        self.coordinator.config = self.config = replace(self.config, **settings)

    # Requests.

    def beat(
        self,
        member_id: str,
        epoch: int,
        owned: Owned | None = None,
        *,
        topics: list[str] | None = None,
        instance_id: str | None = None,
        regex: str | None = None,
        regex_error: str | None = None,
        timeout_ms: int = -1,
        assignor: str | None = None,
        version: int = 1,
        group: str = GROUP,
    ) -> Any:
        """Send a heartbeat; its answer."""
        partitions = None
        if owned is not None:
            partitions = [
                ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=topic_id(name), partitions=indexes)
                for name, indexes in owned.items()
            ]
        body = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=member_id,
            member_epoch=epoch,
            instance_id=instance_id,
            rebalance_timeout_ms=timeout_ms,
            subscribed_topic_names=topics,
            subscribed_topic_regex=regex,
            server_assignor=assignor,
            topic_partitions=partitions,
        )
        return self._repeated(body, ConsumerHeartbeat("r", version, CLIENT, body, FRESH, regex_error))

    def _repeated(self, body: ConsumerGroupHeartbeatRequest, event: ConsumerHeartbeat) -> Any:
        """Handle a heartbeat. If it could be answered like an equal one before it, that must be right."""
        kept = self._kept.pop(body.member_id, None)
        before = len(self.log), len(self.asked), len(self.works)
        is_repeated = kept is not None and kept[0] == body and kept[1].again(self.ms)
        answer = self.handle(event)
        if kept is not None and is_repeated:
            self.repeated += 1
            assert answer == kept[2]
            assert before == (len(self.log), len(self.asked), len(self.works))
        steady = self.coordinator.steady(body.group_id, body.member_id, self.now())
        if steady is not None and answer.assignment is None and answer.member_epoch == steady.epoch:
            self._kept[body.member_id] = (body, steady, answer)
        return answer

    def join(self, member_id: str, topics: list[str] | None = None, **others: Any) -> Any:
        """Send the first heartbeat of a member."""
        names = ["t"] if topics is None and "regex" not in others else topics
        others.setdefault("timeout_ms", 10_000)
        return self.beat(member_id, 0, {}, topics=names, **others)

    def leave(self, member_id: str, **others: Any) -> Any:
        """Leave for good."""
        return self.beat(member_id, -1, **others)

    def commit(
        self, member_id: str, epoch: int, partition: int = 0, version: int = 9, topic: str = "t", metadata: str = ""
    ) -> int:
        """Commit offset 7 of a partition; the error code."""
        body = commit_request(GROUP, {(topic, partition): 7}, epoch, member_id)
        body.topics[0].partitions[0].committed_metadata = metadata
        answered = self.handle(CommitOffsets("r", version, CLIENT, body))
        return int(answered.topics[0].partitions[0].error_code)

    def fetch(self, member_id: str | None, epoch: int) -> Any:
        """Fetch the offset of partition 0 of topic t."""
        asked = [OffsetFetchRequest.OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
        return self.handle(FetchOffsets("r", GROUP, asked, False, CLIENT, member_id, epoch))

    def remove(self, member_id: str = "", instance_id: str | None = None, reason: str | None = None) -> int:
        """An administrator's LeaveGroup; the error code of the member."""
        body = leave_request(GROUP, (member_id, instance_id), reason=reason)
        return int(self.handle(LeaveGroup("r", 5, CLIENT, body)).members[0].error_code)

    def remove_all(self, *member_ids: str) -> list[int]:
        """One LeaveGroup of several members; their error codes."""
        body = leave_request(GROUP, *((member_id, None) for member_id in member_ids))
        return [member.error_code for member in self.handle(LeaveGroup("r", 5, CLIENT, body)).members]

    def describe(self, group: str = GROUP, *, waiting: bool = False) -> Any:
        """The group as ConsumerGroupDescribe shows it."""
        found = self.handle(DescribeConsumerGroup("r", group, CLIENT, waiting=waiting))
        if not isinstance(found, Description):
            return found
        steps = described(self.coordinator.topics, found)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return end.value

    def delete(self) -> int:
        """Delete the group; the error code."""
        return int(self.handle(DeleteGroup("r", GROUP, CLIENT)).error_code)

    def resolve(self, **topics: list[str]) -> None:
        """Bring the result of the last resolution that was asked for: topics by regular expression."""
        asked = self.asked.pop()
        found = {regex: frozenset(topics.get(regex, ())) for regex in asked.regexes}
        self.handle(RegexResolved(asked.group_id, found, self.version, self.now().wall_ms))

    def work(self, steps: int | None = None) -> None:
        """Go on with the targets that are made in steps, as far as `steps` go; None: to their end."""
        while self.works and steps != 0:
            event = next(self.works[0], GONE)
            if event is GONE:
                del self.works[0]
            elif event is not None:
                self.handle(event)
            steps = None if steps is None else steps - 1

    # Requests of classic members.

    def classic_join(
        self,
        member_id: str,
        metadata: bytes | None = None,
        *,
        name: str = "range",
        protocols: list[tuple[str, bytes]] | None = None,
        instance_id: str | None = None,
        version: int = 9,
        timeout_ms: int = 10_000,
        session_ms: int = 45_000,
        protocol_type: str = "consumer",
        request: str = "join",
        group: str = GROUP,
    ) -> Any:
        """Send a JoinGroup; its answer, None if it waits."""
        offered = [(name, subscribed("t") if metadata is None else metadata)] if protocols is None else protocols
        times = {"session_ms": session_ms, "rebalance_ms": timeout_ms}
        said = {"protocol_type": protocol_type, "protocols": offered}
        body = join_request(group, member_id, instance_id, **times, **said)  # type: ignore[arg-type]
        self.fresh += 1
        return self.handle(JoinGroup(request, version, CLIENT, body, f"{self.fresh:032x}"))

    def classic_sync(
        self,
        member_id: str,
        generation: int,
        given: dict[str, bytes] | None = None,
        *,
        request: str = "sync",
        **said: Any,
    ) -> Any:
        """Send a SyncGroup; its answer, None if it waits."""
        body = sync_request(GROUP, generation, member_id, given=given, **said)
        return self.handle(SyncGroup(request, 5, CLIENT, body))

    def classic_beat(self, member_id: str, generation: int, instance_id: str | None = None) -> int:
        """Send a heartbeat as the server does, without an event if that is enough; the error code."""
        error = self.coordinator.heartbeat(GROUP, member_id, instance_id, generation, self.ms)
        if error is None:
            body = heartbeat_request(GROUP, generation, member_id, instance_id)
            error = self.handle(Heartbeat("r", body)).error_code
        return int(error)

    def classic_group(self, *members: tuple[str, str | None, Owned]) -> list[str]:
        """Form a Stable classic group: each member's name, instance id and assignment; their member ids."""
        ids: list[str] = []
        for name, instance_id, _ in members:
            # JoinGroup v3 takes a dynamic member without another round.
            version = 3 if instance_id is None else 9
            self.classic_join("", instance_id=instance_id, version=version, request=name)
            for member_id, (former, instance, _) in zip(ids, members, strict=False):
                self.classic_join(member_id, instance_id=instance, request=former)
            ids.append(self.answers[name].member_id)
        generation = self.answers[members[-1][0]].generation_id
        given = {member_id: assigned(**held) for member_id, (_, _, held) in zip(ids, members, strict=True)}
        for member_id, (name, _, _) in reversed(list(zip(ids, members, strict=True))):
            self.classic_sync(member_id, generation, given if member_id == ids[0] else None, request=f"sync {name}")
        assert self.state() == "Stable"
        return ids

    # Time.

    def wait(self, ms: int) -> None:
        """Let time pass; timers fire in their order."""
        until = self.ms + ms
        while self.timers and (at_ms := min(self.timers.values())) <= until:
            key = min(self.timers, key=lambda key: self.timers[key])
            del self.timers[key]
            self.ms = max(self.ms, at_ms)
            self.handle(TimerFired(key))
        self.ms = until

    def restart(self) -> None:
        """Start another coordinator from the log."""
        topics = self.coordinator.topics
        self.coordinator.close()
        self.coordinator = Coordinator(0, self.config)
        self.coordinator.topics = topics
        self.timers.clear()
        self.works.clear()
        # A classic group goes back to its last synced generation.
        self._epochs = {name: known for name, known in self._epochs.items() if known[0] is Kind.CONSUMER}
        replay = Replay()
        replay.add(self.log)
        self.handle(Load({group.group_id: group for group in replay.groups()}))

    # What it is like.

    @property
    def group(self) -> ConsumerGroup:
        """The group as the coordinator holds it."""
        found: ConsumerGroup = self.coordinator.groups[GROUP]
        return found

    def state(self) -> str:
        """The group's state."""
        return self.group.state.value

    def held(self) -> dict[str, Owned]:
        """The partitions that each member may use or must give up, by member id."""
        return {
            member_id: named({**member.assigned, **member.revoking}) for member_id, member in self.group.members.items()
        }

    def check(self) -> None:
        """Check what must always hold."""
        groups = [group for group in self.coordinator.groups.values() if group.kind is Kind.CONSUMER]
        for group in self.coordinator.groups.values():
            kind, epoch, size = self._epochs.get(group.group_id, (group.kind, 0, 0))
            # An empty group that changes its kind starts counting anew.
            assert group.generation >= epoch or (group.kind is not kind and not size)
        for group in groups:
            seen: set[tuple[UUID, int]] = set()
            for member in group.members.values():
                for held in (member.assigned, member.revoking):
                    for topic, partitions in held.items():
                        pairs = {(topic, partition) for partition in partitions}
                        assert not pairs & seen, f"two hold {pairs & seen}"
                        seen |= pairs
                assert member.epoch <= max(group.generation, 0)
            assert {topic: set(held) for topic, held in group.holders.items()} == by_topic(seen)
            assert group.target_epoch <= group.generation
            assert group.state is group.current_state()
            assert group.unsettled == {
                member_id for member_id, member in group.members.items() if not member.is_at(group.target_epoch)
            }
            assert group.targets.keys() <= group.members.keys()
        self._epochs = {
            group.group_id: (group.kind, group.generation, group.size) for group in self.coordinator.groups.values()
        }
        self._check_log(groups)

    def _check_stored(self, written: list[Record]) -> None:
        """A cluster's store takes the batch: whole, or each record of one that may be divided."""
        limit = self.config.stored_max_bytes
        if limit and not any({record.key[:2] for record in written} <= versions for versions in DIVISIBLE):
            assert len(written) <= self.config.stored_max_records
            assert stored_bytes(written) <= limit
        elif limit:
            assert all(stored_bytes([record]) <= limit for record in written)

    def _check_log(self, groups: list[ConsumerGroup]) -> None:
        """The log makes the same groups again."""
        if self._replayed[0] != self.log:
            replay = Replay()
            replay.add(self.log)
            self._replayed = list(self.log), {group.group_id: group for group in replay.groups()}
            assert not replay.skipped
        replayed = self._replayed[1]
        for classic in self.coordinator.groups.values():
            if isinstance(classic, Group) and classic.state is State.STABLE:
                assert not violations(classic)
                logged: Any = replayed[classic.group_id]
                assert group_value(logged, logged.state_since_ms) == group_value(classic, classic.state_since_ms)
        for group in groups:
            again: Any = replayed[group.group_id]
            for field in ("generation", "target_epoch", "target_ms", "members", "static_members", "offsets"):
                assert getattr(again, field) == getattr(group, field), field
            # The version of topics isn't taken from a record: it means nothing to another server.
            assert {regex: found._replace(version=0) for regex, found in group.regexes.items()} == again.regexes
            mine = {member_id: target for member_id, target in group.targets.items() if target}
            assert {member_id: target for member_id, target in again.targets.items() if target} == mine


def subscribed(*topics: str, owned: Owned | None = None, generation: int = -1, version: int = 3) -> bytes:
    """The metadata of a classic consumer."""
    said = ConsumerProtocolSubscription(
        topics=list(topics),
        owned_partitions=[
            ConsumerProtocolSubscription.TopicPartition(topic=name, partitions=held)
            for name, held in (owned or {}).items()
        ],
        generation_id=generation,
    )
    return version.to_bytes(2) + encode(said, version)


def assigned(**held: list[int]) -> bytes:
    """A leader's assignment for a classic consumer."""
    given = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignment.TopicPartition(topic=name, partitions=partitions)
            for name, partitions in held.items()
        ]
    )
    return b"\0\0" + encode(given, 0)


def read(assignment: bytes) -> Owned:
    """The partitions in an assignment for a classic consumer."""
    found = decode_assignment("consumer", assignment)
    assert found is not None
    return found


def by_topic(pairs: set[tuple[UUID, int]]) -> dict[UUID, set[int]]:
    """Partitions by topic id."""
    found: dict[UUID, set[int]] = {}
    for topic, partition in pairs:
        found.setdefault(topic, set()).add(partition)
    return found


def named(held: Any) -> Owned:
    """Partitions by the name of their topic, in order."""
    return {topic.bytes.rstrip(b"\0").decode(): sorted(partitions) for topic, partitions in sorted(held.items())}


def given(answer: Any) -> Owned | None:
    """The assignment in an answer; None if it has none."""
    if answer.assignment is None:
        return None
    return {
        each.topic_id.bytes.rstrip(b"\0").decode(): each.partitions
        for each in sorted(answer.assignment.topic_partitions, key=lambda each: each.topic_id)
    }
