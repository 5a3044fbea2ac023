"""A slow and failing log under a real runtime: every note that comes out is true.

Hypothesis plays members as in `test_simulation`, but through `Runtime`, its gate and an engine. An append waits until a
rule makes it durable or lets it fail. After each step `Witness` checks the notes that came out; log lines, counts and
events all come from them. A note that rests on a record must agree with the records that are durable at that moment. A
note about a state that Kafka doesn't write (an open rebalance, a pending member) needs no record.

House rule: the witness reads the records by the schema alone, and knows nothing of the runtime.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from coordinator.group import events, notes
from coordinator.group.client import Client
from coordinator.group.course import Outcome, Snapshot
from coordinator.group.notes import Noted
from coordinator.log.engine import Unavailable
from coordinator.loop.lines import Lines
from coordinator.loop.pace import Pace
from coordinator.server.runtime.replies import Reply
from coordinator.server.runtime.runtime import Runtime
from coordinator.server.runtime.trouble import BACKOFF_MAX_MS
from coordinator.server.telemetry.note_lines import NoteLines
from protocol.messages import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    decode,
)
from protocol.records.batch import Record
from tests.server.harness import ManualClock, config_of, subscription
from tests.support.length import at_most
from tests.support.memory import ManualEngine
from tests.support.requests import (
    commit_request,
    delete_offsets_request,
    heartbeat_request,
    join_request,
    leave_request,
    sync_request,
)

GROUPS = ("g", "h")
INSTANCES = ("i0", "i1", None, None)
join_for = partial(join_request, session_ms=6_000, rebalance_ms=20_000)
GROUP_KEY, OFFSET_KEYS = 2, (0, 1)
A_LONG_TIME_MS = 10 * 60_000
TURNS_MAX = 1_000
"""More turns of the loop than any step here takes."""


class Answer(Reply):
    """Takes exactly one answer."""

    def __init__(self) -> None:
        self.body: Any = None

    def deliver(self, body: Any) -> None:
        """Take the answer."""
        assert self.body is None, "answered twice"
        assert body is not None
        self.body = body


class Witness:
    """Checks notes against the log.

    written: the values of each group's record, oldest first, None for its tombstones.
    removed: keys of offsets that have a tombstone.
    """

    def __init__(self, log: list[Record]) -> None:
        self._log = log
        self._read = 0
        self.written: dict[str, list[GroupMetadataValue | None]] = {}
        self.removed: set[tuple[str, str, int]] = set()

    def check(self, note: notes.Note) -> None:
        """Check one note at the moment it comes out."""
        self._read_on()
        check = self._CHECKS.get(type(note))
        if check is not None:
            check(self, note)

    def _read_on(self) -> None:
        for record in self._log[self._read :]:
            version = int.from_bytes(record.key[:2])
            if version == GROUP_KEY:
                group = decode(GroupMetadataKey, record.key, version, 2).group
                value = record.value
                state = None if value is None else decode(GroupMetadataValue, value, int.from_bytes(value[:2]), 2)
                self.written.setdefault(group, []).append(state)
            elif version in OFFSET_KEYS and record.value is None:
                key = decode(OffsetCommitKey, record.key, version, 2)
                self.removed.add((key.group, key.topic, key.partition))
        self._read = len(self._log)

    def _generation(self, note: notes.Note, generation: int) -> list[GroupMetadataValue]:
        """The records of a group at a generation."""
        states = self.written.get(note.group, [])
        found = [state for state in states if state is not None and state.generation == generation]
        assert found, f"the log has no generation {generation} for {note}"
        return found

    def _started(self, note: notes.RebalanceStarted) -> None:
        if note.state == "Stable":
            assert any(state.members for state in self._generation(note, note.generation))

    def _completed(self, note: notes.RebalanceCompleted) -> None:
        found = self._generation(note, note.generation)
        assert any((len(state.members), state.leader) == (note.members, note.leader) for state in found)

    def _ended(self, note: notes.RebalanceEnded) -> None:
        if note.outcome is Outcome.COMPLETED:
            assert any(seats_of(state) == seats(note.after) for state in self._generation(note, note.generation))
        elif note.outcome is Outcome.EMPTIED:
            assert any(not state.members for state in self._generation(note, note.generation))

    def _emptied(self, note: notes.GroupEmptied) -> None:
        assert any(not state.members for state in self._generation(note, note.generation))

    def _replaced(self, note: notes.MemberReplaced) -> None:
        if note.state == "Stable" and not note.rebalances:
            found = self._generation(note, note.generation)
            seat = note.group_instance_id, note.member_id
            assert any(
                seat == (member.group_instance_id, member.member_id) for state in found for member in state.members
            )

    def _deleted(self, note: notes.GroupDeleted) -> None:
        if note.generation:  # a group that only had offsets has no record, so it needs no tombstone
            assert None in self.written[note.group]

    def _loaded(self, note: notes.GroupLoaded) -> None:
        states = self.written.get(note.group, [None])
        last = states[-1]
        if note.state == "Dead":
            assert last is None
        elif last is not None:
            assert (last.generation, len(last.members)) == (note.generation, note.members)
        else:
            assert (note.generation, note.members) == (0, 0)

    def _removed(self, note: notes.OffsetsRemoved) -> None:
        assert {(note.group, *place) for place in note.topic_partitions} <= self.removed

    _CHECKS: dict[type[notes.Note], Callable[[Witness, Any], None]] = {
        notes.RebalanceStarted: _started,
        notes.RebalanceCompleted: _completed,
        notes.RebalanceEnded: _ended,
        notes.GroupEmptied: _emptied,
        notes.MemberReplaced: _replaced,
        notes.GroupDeleted: _deleted,
        notes.GroupLoaded: _loaded,
        notes.OffsetsRemoved: _removed,
    }


def seats_of(state: GroupMetadataValue) -> set[tuple[str, str | None, bytes]]:
    """The members in a record."""
    return {(member.member_id, member.group_instance_id, member.assignment) for member in state.members}


def seats(after: tuple[Snapshot, ...]) -> set[tuple[str, str | None, Any]]:
    """The members in a note."""
    return {(seat.member_id, seat.group_instance_id, seat.assignment) for seat in after}


class World:
    """A runtime of one partition; the test controls its loop, clock and log.

    untrue: notes that came out and contradict the log.
    """

    def __init__(self) -> None:
        config = config_of(
            "offsets.topic.num.partitions=1", "offsets.retention.minutes=1", "offsets.retention.check.interval.ms=30000"
        )
        self.clock = ManualClock()
        self.engine = ManualEngine(1, config.node_id)
        self.witness = Witness(self.engine.records[0])
        self.untrue: list[str] = []
        self.answers: list[Answer] = []
        self._turn: list[Callable[[], None]] = []
        self._fresh = count(1)
        self.log = io.StringIO()
        lines = Lines(self.log, "json", 1, self.clock)
        soon = self._turn.append
        self.runtime = Runtime(
            config,
            self.engine,
            self.clock,
            lines,
            [NoteLines(lines).take, self._take],
            soon,
            soon,
            Pace(self.clock, soon),
            lambda: None,
        )
        self.runtime.start()
        self.settle()

    def _take(self, noted: Sequence[Noted]) -> None:
        for _, _, happened in noted:
            for note in happened:
                try:
                    self.witness.check(note)
                except AssertionError as error:  # otherwise the runtime would catch it and write a log line
                    self.untrue.append(f"{note}: {error}")

    def settle(self) -> None:
        """Let the loop turn until it has nothing to do. Work that waits for the log stays undone."""
        for _ in range(TURNS_MAX):
            if not self._turn:
                assert not self.untrue
                assert "_broke" not in self.log.getvalue()
                return
            turn, self._turn[:] = list(self._turn), []
            for call in turn:
                call()
        raise AssertionError("the loop never rests")

    def ask(self, group: str, event: Any) -> Answer:
        """Hand in a request; the loop turns later."""
        answer = Answer()
        event.request = answer
        self.answers.append(answer)
        self.runtime.submit(group, event)
        return answer

    def fresh_id(self) -> str:
        """A new id."""
        return f"{next(self._fresh):04}"


@dataclass
class Actor:
    """A client, with the ids and the generation that it knows."""

    instance_id: str | None
    member_id: str = ""
    generation: int = -1
    joined: Answer | None = None

    def learn(self) -> Actor:
        """Read the answer to the last JoinGroup, if it has come."""
        if self.joined is not None and self.joined.body is not None and self.joined.body.member_id:
            self.member_id, self.generation = self.joined.body.member_id, self.joined.body.generation_id
        return self


SOMEBODY = Client("client", "/127.0.0.1")


class FailingDisk(RuleBasedStateMachine):
    """Each rule is an act of a client, the loop, the disk or time."""

    world: World
    actors: list[Actor]

    @initialize()
    def begin(self) -> None:
        """There are two static and two dynamic clients, and a twin of a static one."""
        self.world = World()
        self.actors = [Actor(name) for name in (*INSTANCES, "i0")]

    @rule(who=st.integers(0, 4), group=st.sampled_from(GROUPS), known=st.booleans(), topic=st.sampled_from("tu"))
    def join(self, *, who: int, group: str, known: bool, topic: str) -> None:
        """Join anew, or with the known member id."""
        actor = self.actors[who].learn()
        protocols = [("range", subscription(topic))]
        body = join_for(group, actor.member_id if known else "", actor.instance_id, protocols=protocols)
        actor.joined = self.world.ask(group, events.JoinGroup(None, 7, SOMEBODY, body, self.world.fresh_id()))

    @rule(who=st.integers(0, 4), group=st.sampled_from(GROUPS))
    def sync(self, who: int, group: str) -> None:
        """Sync with assignments for each member; only the leader's count."""
        actor = self.actors[who].learn()
        self._sync(group, actor.member_id, actor.generation)

    def _sync(self, group: str, member_id: str, generation: int) -> None:
        live = self.world.runtime.partitions[0].coordinator.groups.get(group)
        assigned = {} if live is None else {each: f"{each} {generation}".encode() for each in live.members}
        body = sync_request(group, generation, member_id, given=assigned)
        self.world.ask(group, events.SyncGroup(None, 4, SOMEBODY, body))

    @rule(group=st.sampled_from(GROUPS), size=st.integers(1, 3))
    def everybody_does_right(self, group: str, size: int) -> None:
        """The first clients and all members join and sync, because random steps hardly ever reach Stable."""
        for who in range(size):
            if not self.actors[who].learn().member_id:
                self.join(who=who, group=group, known=False, topic="t")
        self.world.settle()
        live = self.world.runtime.partitions[0].coordinator.groups.get(group)
        for member in [] if live is None else list(live.members.values()):
            if member.awaiting_join is None:
                named = (member.member_id, member.group_instance_id)
                body = join_for(group, *named, protocols=member.protocols)
                self.world.ask(group, events.JoinGroup(None, 7, SOMEBODY, body, self.world.fresh_id()))
        self.world.settle()
        live = self.world.runtime.partitions[0].coordinator.groups.get(group)
        if live is not None and live.leader is not None:
            self._sync(group, live.leader, live.generation)

    @rule(who=st.integers(0, 4), group=st.sampled_from(GROUPS), named=st.booleans())
    def heartbeat(self, *, who: int, group: str, named: bool) -> None:
        """Send a heartbeat; a twin is fenced."""
        actor = self.actors[who].learn()
        body = heartbeat_request(group, actor.generation, actor.member_id, actor.instance_id if named else None)
        self.world.ask(group, events.Heartbeat(None, body, SOMEBODY))

    @rule(who=st.integers(0, 4), group=st.sampled_from(GROUPS))
    def leave(self, who: int, group: str) -> None:
        """Leave."""
        actor = self.actors[who].learn()
        body = leave_request(group, (actor.member_id, actor.instance_id))
        self.world.ask(group, events.LeaveGroup(None, 4, SOMEBODY, body))

    @rule(who=st.integers(0, 4), group=st.sampled_from(GROUPS), member=st.booleans())
    def commit(self, *, who: int, group: str, member: bool) -> None:
        """Commit as a member, or without a member id."""
        actor = self.actors[who].learn()
        named = (actor.generation, actor.member_id) if member else ()
        body = commit_request(group, {("t", who): self.world.clock.ms()}, *named)
        self.world.ask(group, events.CommitOffsets(None, 7, SOMEBODY, body))

    @rule(group=st.sampled_from(GROUPS), partition=st.integers(0, 4))
    def delete_offsets(self, group: str, partition: int) -> None:
        """An operator deletes an offset."""
        self.world.ask(group, events.DeleteOffsets(None, delete_offsets_request(group, {"t": [partition]})))

    @rule(group=st.sampled_from(GROUPS))
    def delete_group(self, group: str) -> None:
        """An operator deletes a group."""
        self.world.ask(group, events.DeleteGroup(None, group))

    @rule()
    def loop_turns(self) -> None:
        """The loop does all work that does not wait for the log."""
        self.world.settle()

    @rule(ms=st.sampled_from([1, 500, 6_000, 20_000, 61_000]))
    def time_passes(self, ms: int) -> None:
        """Sessions end, offsets expire, a partition whose log failed loads again."""
        self.world.settle()
        self.world.clock.advance(ms)

    @rule(slow=st.booleans())
    def disk_is(self, slow: bool) -> None:
        """From now on appends wait for the disk, or don't."""
        self.world.engine.hold = slow

    @rule()
    def disk_is_done(self) -> None:
        """All waiting appends become durable."""
        self.world.engine.flush()
        self.world.settle()

    @rule()
    def disk_fails(self) -> None:
        """The next write fails."""
        self.world.engine.fail_next(Unavailable("No space left on device"))

    def teardown(self) -> None:
        """Once the disk works again, every request gets an answer."""
        if not hasattr(self, "world"):
            return
        self.world.engine.hold = False
        for _ in range(2):
            self.world.settle()
            self.world.engine.flush()
            self.world.settle()
            self.world.clock.advance(max(A_LONG_TIME_MS, BACKOFF_MAX_MS))
        self.world.settle()
        assert all(answer.body is not None for answer in self.world.answers), "some wait for ever"


TestFailingDisk = FailingDisk.TestCase
TestFailingDisk.settings = at_most(300)
