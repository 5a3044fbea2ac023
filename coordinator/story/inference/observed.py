"""Follows all groups of one partition of `__consumer_offsets`, record by record.

A generation that left no record shows as a jump. If every record since the group's last one was seen, the coordinator
wrote none for it: the next rebalance began before its assignments came (outcome "superseded"). If compaction may have
removed records meanwhile, nobody knows.

House rule: memory holds each group's last record and the last commits of its members; no history.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple
from uuid import UUID

from msgspec.structs import replace

from coordinator.group import notes
from coordinator.group.causes import CauseKind
from coordinator.group.consumer.records import EPOCH
from coordinator.group.state import State
from coordinator.story.events import Cause, GroupEvent
from coordinator.story.inference.classic import RETURNED, Causes, Classic, kinds_of
from coordinator.story.inference.consumer import Consumer
from coordinator.story.inference.knowledge import Live, Told
from coordinator.story.inference.seen import Seat, Seen, returned, taken, topics_of
from coordinator.story.inference.streams import CONSUMER_VERSION, Streams
from coordinator.story.inference.told import cause_of, ended, event, superseded, unknown
from coordinator.story.records.consumer import READ_VERSIONS, SHARE_VERSIONS, STREAMS_VERSIONS, read_consumer_value
from coordinator.story.records.values import GROUP_KIND, OFFSET_KIND, UNREADABLE_KIND, Key, read_group, read_key
from coordinator.story.schema import STREAMS, UNKNOWN
from protocol.errors import ProtocolError

TOLD_MAX = 1_000
"""Told causes that wait for their record, the newest ones."""

DELETED_MAX = 10_000
"""Deleted groups that are remembered: what comes after is the beginning of a new group."""

FOR_WANT_OF_OTHERS = frozenset({UNKNOWN, CauseKind.LEADER_REJOINED.value, CauseKind.MEMBER_REJOINED.value})
"""Kinds that are inferred where the records show no other; a told cause takes their place."""

SUPERSEDED_MAX = 100
"""Most generations without a record that have an event each, at one jump."""


class Batch(NamedTuple):
    """The batch that a record is in. epoch: of the partition's leader that wrote it."""

    base_offset: int
    epoch: int = -1
    is_transactional: bool = False


NO_BATCH = Batch(-1)


@dataclass(slots=True, eq=False, repr=False)
class _Group:
    """The knowledge about a group. since: the offset of its last record. is_new: whether its first record was seen.

    streams: None unless it is a streams group, which `consumer` follows too.
    """

    classic: Classic = field(default_factory=Classic)
    consumer: Consumer | None = None
    streams: Streams | None = None
    since: int = -1
    is_new: bool = False
    epoch: int = -1


class _Ending(NamedTuple):
    """A group whose tombstone came: its deletion, unless the same batch has it in the other protocol."""

    event: GroupEvent
    kind: str
    members: int


class Observed:
    """See the package. topic_names: topic id -> name, looked up when a record is taken.

    session_timeouts: in ms, of groups of the consumer protocol by their ids, looked up when a group is seen first.
    streams_timeouts: those of streams groups.
    """

    def __init__(
        self,
        topic_names: Mapping[UUID, str] | None = None,
        session_timeouts: Mapping[str, int] | None = None,
        streams_timeouts: Mapping[str, int] | None = None,
    ) -> None:
        self.topic_names = {} if topic_names is None else topic_names
        self._session_timeouts = {} if session_timeouts is None else session_timeouts
        self._streams_timeouts = {} if streams_timeouts is None else streams_timeouts
        self.unreadable = 0
        self._groups: dict[str, _Group] = {}
        self._next = 0
        self._newest_ms = -1
        self._gap = -1
        self._told: dict[tuple[str, int], Told | None] = {}
        self._deleted: dict[str, int] = {}
        self._ending: dict[str, _Ending] = {}
        self._changed: dict[str, int] = {}

    @property
    def groups(self) -> list[str]:
        """The ids of the groups whose records were seen and that were not deleted."""
        return list(self._groups)

    def session_timeouts_of(self, group_id: str) -> dict[str, int]:
        """The session timeouts of a classic group's members in ms, by member id, as its last record has them."""
        group = self._groups.get(group_id)
        last = None if group is None else group.classic.last
        return {} if last is None else {each.member_id: each.session_timeout for each in last.value.members}

    def passed(self, offset: int) -> None:
        """The log has something at this offset that is no record of a group, such as a transaction's marker."""
        if offset != self._next:
            self._gap = offset
        self._next = offset + 1

    def begin_at(self, offset: int) -> None:
        """The reader begins here, or lost the records before."""
        if offset:
            self._gap = max(offset, self._gap)
        self._next = offset

    def told(self, cause: Told) -> None:
        """A cause that somebody knows; it must come before the record of the generation that follows.

        Two different causes for one generation belong to two groups of one name, because somebody deleted the first
        one, or to two coordinators, because the group moved. Neither counts.
        """
        place = cause.group, cause.generation_before
        self._told[place] = cause if self._told.get(place, cause) == cause else None
        if len(self._told) > TOLD_MAX:
            del self._told[next(iter(self._told))]

    def described(self, group_id: str, at_ms: int, state: str, member_ids: frozenset[str]) -> None:
        """The group as it is described at a time; looks come in their order (`Classic.looked`)."""
        group = self._groups.get(group_id)
        if group is not None:
            is_preparing = state == State.PREPARING_REBALANCE.value
            # Where this clock is behind the cluster's, the newest record still came before.
            group.classic.looked(Live(max(at_ms, self._newest_ms), member_ids), is_preparing=is_preparing)

    def add(
        self, offset: int, at_ms: int, key: bytes, value: bytes | None, batch: Batch = NO_BATCH
    ) -> list[GroupEvent]:
        """Take the next record or tombstone; the events that it tells."""
        self.passed(offset)
        self._newest_ms = max(self._newest_ms, at_ms)
        read = read_key(key)
        if read.kind == OFFSET_KIND:
            assert read.group_id is not None
            group = self._groups.get(read.group_id)
            if group is not None and value is not None:
                assert read.topic is not None
                assert read.topic_partition is not None
                if group.consumer is not None:
                    topic = read.topic if group.streams is None else group.streams.place(read.topic)
                    group.consumer.committed(topic, read.topic_partition, at_ms)
                else:
                    weak = batch.is_transactional
                    group.classic.signs.committed(read.topic, read.topic_partition, at_ms, is_weak=weak)
            return []
        if read.kind == GROUP_KIND:
            assert read.group_id is not None
            return self._classic(offset, at_ms, read.group_id, value, batch)
        if read.kind in SHARE_VERSIONS:  # several members may have a partition, so nothing moves from one to another
            self.unreadable += value is not None and not _is_readable(read.kind, value)
            return []
        if read.kind in READ_VERSIONS:
            return self._consumer(offset, at_ms, read, value)
        self.unreadable += read.kind == UNREADABLE_KIND
        return []

    def end_batch(self) -> list[GroupEvent]:
        """The batch is over: ends of rebalances of the consumer protocol, and groups that are gone."""
        if not self._changed and not self._ending:
            return []
        events = [ending.event for ending in self._ending.values()]
        self._ending.clear()
        for group_id, at_ms in self._changed.items():
            group = self._groups.get(group_id)
            if group is not None and group.consumer is not None:
                events += group.consumer.end_batch(at_ms)
        self._changed.clear()
        return events

    def _consumer(self, offset: int, at_ms: int, key: Key, data: bytes | None) -> list[GroupEvent]:
        """Take a record or a tombstone of a group of the consumer protocol, or of a streams group."""
        group_id = key.group_id
        assert group_id is not None
        its_version = READ_VERSIONS[key.kind]
        version = CONSUMER_VERSION.get(its_version, its_version)
        group = self._groups.get(group_id)
        if data is None and (group is None or group.consumer is None):
            return []
        if data is None and version == EPOCH:
            assert group is not None
            assert group.consumer is not None
            epoch = group.consumer.records.epoch
            ends = group.consumer.end_batch(at_ms) if group_id in self._changed else []
            self._gone(group_id, offset)
            gone = event(at_ms, notes.GroupDeleted(group_id, epoch, 0), offsets=None)
            self._ending[group_id] = _Ending(gone, notes.CONSUMER, 0)
            return ends
        try:
            said = None if data is None else read_consumer_value(data, its_version)[1]
        except ProtocolError:
            self.unreadable += 1
            return []
        if group is None:
            group = self._groups[group_id] = _Group()
            group.is_new = self._gap <= self._deleted.pop(group_id, -1)
        events = []
        if group.consumer is None:
            names, timeouts, kind = self.topic_names, self._session_timeouts, notes.CONSUMER
            if key.kind in STREAMS_VERSIONS:
                group.streams = Streams()
                names, timeouts, kind = group.streams.names, self._streams_timeouts, STREAMS
            told = partial(self._told_of, group_id)
            group.consumer = Consumer(group_id, names, timeouts.get(group_id), told, kind)
            ending = self._ending.pop(group_id, None)
            if ending is not None and ending.kind == notes.CLASSIC:
                generation = ending.event.generation
                group.consumer.upgraded(generation)
                note = notes.GroupConverted(group_id, generation, kind, ending.members)
                events.append(event(at_ms, note))
        group.since = offset
        if group.streams is not None and said is not None:
            said = group.streams.consumer_value(its_version, said)
            if said is None:
                return events
        events += group.consumer.add(at_ms, version, key.name, said, is_whole=group.is_new)
        self._changed[group_id] = at_ms
        return events

    def _gone(self, group_id: str, offset: int) -> None:
        """A group is deleted; what comes after is the beginning of a new one."""
        del self._groups[group_id]
        for place in [place for place in self._told if place[0] == group_id]:
            del self._told[place]
        self._deleted[group_id] = offset
        if len(self._deleted) > DELETED_MAX:
            del self._deleted[next(iter(self._deleted))]

    def _classic(self, offset: int, at_ms: int, group_id: str, data: bytes | None, batch: Batch) -> list[GroupEvent]:
        if data is None:
            group = self._groups.get(group_id)
            if group is None or group.classic.last is None:
                return []
            value = group.classic.last.value
            self._gone(group_id, offset)
            gone = event(at_ms, notes.GroupDeleted(group_id, value.generation, 0), offsets=None)
            self._ending[group_id] = _Ending(gone, notes.CLASSIC, len(value.members))
            return []
        try:
            value = read_group(data)[1]
        except ProtocolError:
            self.unreadable += 1
            return []
        converted = self._ending.pop(group_id, None)
        group = self._groups.setdefault(group_id, _Group())
        seen = Seen(offset, at_ms, at_ms, value)
        if converted is not None and converted.kind == notes.CONSUMER and value.members:
            note = notes.GroupConverted(group_id, value.generation, notes.CLASSIC, len(value.members))
            group.classic.take(seen)
            group.since, group.epoch = offset, batch.epoch
            return [event(at_ms, note)]
        before, is_whole = group.classic.last, self._gap <= group.since
        if converted is not None:
            events = [converted.event, *self._first(group_id, seen)]
        elif before is None or seen.value.generation < before.value.generation:
            events = self._first(group_id, seen)
        elif seen.value.generation == before.value.generation:
            events = self._same(group_id, group, before, seen, batch)
        else:
            causes = group.classic.causes(seen)
            events = self._rebalances(group_id, before, seen, before.value.generation, causes, is_whole=is_whole)
        group.classic.take(seen)
        group.since, group.epoch = offset, batch.epoch
        return events

    def _first(self, group_id: str, seen: Seen) -> list[GroupEvent]:
        """The first record of a group: a new group, or the place where the log begins."""
        generation, members = seen.value.generation, len(seen.value.members)
        is_new = self._gap <= self._deleted.pop(group_id, -1)
        if not members and not generation:
            return []
        if generation == 1 or (is_new and members):
            causes = [cause_of("member_joined", member=member) for member in seen.value.members]
            return self._rebalances(group_id, None, seen, 0, Causes(causes or [unknown(())]), is_whole=True)
        state = State.STABLE if members else State.EMPTY
        return [event(seen.ts, notes.GroupLoaded(group_id, generation, state.value, members))]

    def _same(self, group_id: str, group: _Group, before: Seen, seen: Seen, batch: Batch) -> list[GroupEvent]:
        """A record of the same generation: static members are back, or a standby took a seat."""
        events = []
        for name, member_id in returned(before, seen).items():
            seat = Seat(name, is_static=True)
            old, new = before.seats[seat], seen.seats[seat]
            is_loaded = batch.epoch > group.epoch >= 0 and not group.classic.signs.of[seat].times
            events.append(
                event(
                    seen.ts,
                    notes.MemberReplaced(
                        group_id, seen.value.generation, member_id, old.member_id, name, State.STABLE.value,
                        new.client_id, new.client_host, rebalances=False,
                        subscription_changed=topics_of(old) != topics_of(new), after_load=is_loaded,
                    ),
                )
            )  # fmt: skip
        swapped = taken(before, seen)
        if swapped is not None:
            new, old = seen.seats[swapped[0]], before.seats[swapped[1]]
            taking = notes.SeatTaken(
                group_id, seen.value.generation, new.member_id, new.group_instance_id, new.client_id, new.client_host,
                old.member_id, old.group_instance_id, old.client_id, old.client_host, "unknown", 0,
                leads=seen.value.leader == new.member_id, standbys=0,
            )  # fmt: skip
            events.append(event(seen.ts, taking, waited_ms=None, standbys=None))
        return events

    def _rebalances(
        self, group_id: str, before: Seen | None, seen: Seen, former: int, causes: Causes, *, is_whole: bool
    ) -> list[GroupEvent]:
        """The rebalances from one record to the next: those without a record, then the one that has it."""
        generation = seen.value.generation
        missing = generation - former - 1 if is_whole else 0
        kinds = kinds_of(causes.causes)
        events = []
        for lost in range(former, former + missing)[-SUPERSEDED_MAX:]:
            is_sure = len(kinds) == 1 and len(causes.causes) > missing
            # A generation without a record shows nothing of its cause: a leader may have joined again, for one.
            cause = cause_of(kinds[0]) if is_sure else unknown(())
            if lost == former and (before is None or not before.value.members):
                cause = cause_of(CauseKind.MEMBER_JOINED.value)  # nothing else begins a rebalance of an empty group
            cause = self._known(group_id, lost, [cause], before, seen)[0]
            events.append(superseded(group_id, before, max(seen.joined_ms, 0), lost, cause))
        if missing and before is not None and (back := returned(before, seen)):
            # A static member that comes back before the assignments do begins a rebalance. Which of them, nobody knows.
            again = [unknown((*RETURNED, "member_joined"), seen.seats[Seat(name, is_static=True)]) for name in back]
            others = [each for each in again if not any(_is_same(each, other) for other in causes.causes)]
            causes = Causes([*causes.causes, *others], in_order=False)
        known, in_order = self._known(group_id, generation - 1, causes.causes, before, seen), causes.in_order
        if known is not causes.causes:
            in_order = True
        elif generation - former > 1:
            in_order = in_order and len(known) == 1
        last = ended(group_id, before, seen, former + missing, known, in_order=in_order)
        if generation - former - 1 > missing:
            last = replace(last, generations_unseen=generation - former - 1)
        return [*events, last]

    def _known(
        self, group_id: str, generation_before: int, causes: list[Cause], before: Seen | None, seen: Seen
    ) -> list[Cause]:
        """The causes with a told one in front, if there is one that the records don't contradict."""
        told = self._told_of(group_id, generation_before)
        if told is None or not told.agrees(_ids(before), _ids(seen)):
            return causes
        if before is not None and not told.is_of_time(before.ts, seen.ts):
            return causes
        first = told.cause(causes)
        return [
            first,
            *(each for each in causes if each.kind not in FOR_WANT_OF_OTHERS and not _is_same(each, first)),
        ]

    def _told_of(self, group_id: str, generation_before: int) -> Told | None:
        """The told cause of a rebalance, which is used once."""
        return self._told.pop((group_id, generation_before), None)


def _ids(seen: Seen | None) -> frozenset[str]:
    return frozenset() if seen is None else frozenset(member.member_id for member in seen.value.members)


def _is_same(cause: Cause, other: Cause) -> bool:
    return cause.member_ids == other.member_ids


def _is_readable(kind: str, value: bytes) -> bool:
    try:
        read_consumer_value(value, READ_VERSIONS[kind])
    except ProtocolError:
        return False
    return True
