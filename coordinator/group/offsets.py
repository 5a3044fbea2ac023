"""Committed offsets: commit, fetch, delete, expire (Kafka: GroupCoordinator, GroupMetadataManager).

A commit that names a generation, a member id or an instance id claims to come from a member; the group checks the
claim. Any other commit comes from a simple consumer or an administrator; an Empty group stores it.

A client commits the same topic partitions again and again, with other offsets. So a commit has a second form: a
`CommitTemplate` with offsets. It passes the same check and leaves the same records. The runtime collects such commits
and stores many of them in one batch, as Kafka's newer coordinator does (KIP-848: group.coordinator.append.linger.ms). A
commit that needs more than that, a refusal or a timer, goes the first way.

A commit of many topic partitions has a third form. `prepare` makes its offsets and records in steps, before the event:
then the event has little to do, and still stores all of them or none.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from coordinator.config import INT64_MAX, GroupConfig
from coordinator.group import notes, pending, records
from coordinator.group.answers import commit_answer
from coordinator.group.any_group import NO_PENDING, AnyGroup, CommittedOffset, Prepared
from coordinator.group.client import Client, Now
from coordinator.group.events import CommitOffsets, CommitPrepared, DeleteOffsets, EraseOffsets, FetchOffsets
from coordinator.group.group import Group
from coordinator.group.state import COMPLETING_REBALANCE, DEAD, EMPTY, STABLE
from coordinator.group.turn import UNKNOWN_MEMBER_ID, Turn, member_error
from protocol.consumer import CONSUMER
from protocol.messages import OffsetCommitRequest, OffsetDeleteResponse, OffsetFetchResponse
from protocol.primitives import STRING_SIZE_MAX
from protocol.records.batch import Record
from protocol.speed import new
from schemas.errors import ErrorCode

BROKER_RETENTION = -1
"""retention_time_ms of a commit that asks for no retention of its own."""
NO_COMMIT_TIME = -1
"""commit_timestamp of a commit without one; only v1 has one."""
NO_OFFSET = -1
"""OffsetFetch's offset where nothing is committed."""
NO_LEADER_EPOCH = -1

OFFSET_RECORD_MIN = 34
"""The fewest bytes of key and value of a committed offset's record: without group id, topic and metadata."""

PREPARED_AT_ONCE = 64
"""Topic partitions between two pauses of `prepare`: about 0.2 ms."""

REMOVED_AT_ONCE = 500
"""Offsets, and groups, that one event removes: about 1 ms of work."""

# A short name: see `speed`.
NONE = ErrorCode.NONE

Admit = Callable[[Turn, Any, "CommitOffsets | CommitPrepared"], ErrorCode]
"""The rule of a kind of groups that says whether a group takes a commit: NONE if it does."""


class Target(NamedTuple):
    """The content of a commit for a topic partition, except for the offset.

    record: makes the record from an offset and a Unix time in ms.
    """

    topic: str
    partition: int
    leader_epoch: int
    metadata: str
    record: Callable[[int, int], Record]


class CommitTemplate(NamedTuple):
    """The common part of a client's commits: the client, and the content without the offsets.

    size: the most bytes that a batch with its records takes.
    """

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    targets: list[Target]
    size: int


class Repeated(Protocol):
    """A commit that repeats an earlier one with other offsets.

    template: the part that is the same as in the earlier one. offsets: one for each target of the template.
    """

    template: CommitTemplate
    offsets: Sequence[int]


Repeat = TypeVar("Repeat", bound=Repeated)


class Stored(NamedTuple, Generic[Repeat]):
    """Commits that are stored together.

    commits: the stored ones. records: theirs. group_ids: their groups.
    others: commits that need an event each; nothing of them is stored.
    """

    commits: list[Repeat]
    others: list[Repeat]
    records: list[Record]
    group_ids: set[str]


def commit(turn: Turn, group: AnyGroup, event: CommitOffsets, admit: Admit) -> None:
    """Handle an OffsetCommit."""
    if (error := admit(turn, group, event)) is not NONE:
        turn.refuse(event, error)
        return
    body, config, wall_ms = event.body, turn.config, turn.now.wall_ms
    offsets: dict[tuple[str, int], CommittedOffset] = {}
    too_large: set[tuple[str, int]] = set()
    for topic in body.topics:
        add_offsets(offsets, too_large, body, topic.name, topic.partitions, config, wall_ms)
    written = [records.offset_record(group.group_id, *key, each, wall_ms) for key, each in offsets.items()]
    fits = records.batch_size(written) <= config.message_max_bytes
    error = store(turn, group, Prepared(offsets, written, too_large, fits))
    turn.answer(event.request, commit_answer(body, error, too_large if error is NONE else ()))


def commit_prepared(turn: Turn, group: AnyGroup, event: CommitPrepared, admit: Admit) -> None:
    """Handle an OffsetCommit that `prepare` has prepared."""
    error = admit(turn, group, event)
    turn.answer(event.request, store(turn, group, event.prepared) if error is NONE else error)


def admit(turn: Turn, group: Group, event: CommitOffsets | CommitPrepared) -> ErrorCode:
    """NONE if a group of the classic protocol takes the commit, which then counts as a heartbeat of its member."""
    body = event.body
    error = commit_error(group, body.member_id, body.group_instance_id, body.generation_id_or_member_epoch)
    if error is not NONE:
        if error is ErrorCode.FENCED_INSTANCE_ID:
            turn.validate_member(group, body.member_id, body.group_instance_id, "offset-commit", event.client)
        # A standby holds no partitions: what it commits isn't its own.
        return ErrorCode.REBALANCE_IN_PROGRESS if body.member_id in group.standbys else error
    member = group.members.get(body.member_id)
    if member is not None:
        turn.renew_sessions(group, [member])
    return NONE


def store(turn: Turn, group: AnyGroup, prepared: Prepared) -> ErrorCode:
    """Store a commit. One batch has all of it; if it can't, nothing is stored."""
    if not prepared.fits:
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    stored = group.offsets
    for (topic, partition), committed in prepared.offsets.items():
        stored.setdefault(topic, {})[partition] = committed
    if group.pending_offsets is not NO_PENDING:
        pending.supersede(group, prepared.offsets)
    turn.effects.records += prepared.records
    return NONE


def prepare(body: OffsetCommitRequest, config: GroupConfig, wall_ms: int) -> Generator[None, None, Prepared]:
    """Prepare a commit, in steps. wall_ms: the time of the commit, Unix time in ms."""
    group_id = body.group_id
    offsets: dict[tuple[str, int], CommittedOffset] = {}
    too_large: set[tuple[str, int]] = set()
    # A commit that is much too large ends here: the list of its records would need much memory.
    offsets_max = config.message_max_bytes // (records.RECORD_OVERHEAD + OFFSET_RECORD_MIN)
    for topic in body.topics:
        for start in range(0, len(topic.partitions), PREPARED_AT_ONCE):
            some = topic.partitions[start : start + PREPARED_AT_ONCE]
            add_offsets(offsets, too_large, body, topic.name, some, config, wall_ms)
            yield
            if len(offsets) > offsets_max:
                return Prepared(offsets, [], too_large, fits=False)
    written: list[Record] = []
    size = records.BATCH_OVERHEAD
    for (name, partition), committed in offsets.items():
        record = records.offset_record(group_id, name, partition, committed, wall_ms)
        written.append(record)
        size += records.batch_size([record]) - records.BATCH_OVERHEAD
        if size > config.message_max_bytes:
            return Prepared(offsets, written, too_large, fits=False)
        yield
    return Prepared(offsets, written, too_large, fits=True)


def commit_repeated(
    groups: Mapping[str, AnyGroup], commits: Iterable[Repeat], now: Now, config: GroupConfig
) -> Stored[Repeat]:
    """Store repeated commits in one batch, but for those that need more than that."""
    outcome: Stored[Repeat] = new(Stored, ([], [], [], set()))
    ms, wall_ms = now
    whole_size = 0
    for commit in commits:
        group_id, member_id, instance_id, generation, targets, size = commit.template
        group = groups.get(group_id)
        if (
            # The epoch of a commit in the consumer protocol is looked at for each partition.
            group.__class__ is not Group
            or commit_error(group, member_id, instance_id, generation) is not NONE
            or whole_size + size > config.message_max_bytes
        ):
            outcome.others.append(commit)
            continue
        member = group.members.get(member_id)
        if member is not None:
            deadline_ms = ms + member.session_timeout_ms
            if deadline_ms < member.timer_at_ms:
                outcome.others.append(commit)
                continue
            member.deadline_ms = deadline_ms
        outcome.commits.append(commit)
        outcome.group_ids.add(group_id)
        whole_size += size
        stored, offsets = group.offsets, iter(commit.offsets)
        for topic, partition, leader_epoch, metadata, record in targets:
            offset = next(offsets)  # zip takes a quarter of the time of this loop
            if topic not in stored:
                stored[topic] = {}
            stored[topic][partition] = new(CommittedOffset, (offset, leader_epoch, metadata, wall_ms, None))
            outcome.records.append(record(offset, wall_ms))
        if group.pending_offsets is not NO_PENDING:
            pending.supersede(group, [(target.topic, target.partition) for target in targets])
    return outcome


def template_of(body: OffsetCommitRequest, config: GroupConfig) -> CommitTemplate | None:
    """The template of commits like this one; None if each of them needs an event."""
    targets: dict[tuple[str, int], Target] = {}
    size = records.BATCH_OVERHEAD
    for topic in body.topics:
        for partition in topic.partitions:
            metadata = partition.committed_metadata or ""
            key = topic.name, partition.partition_index
            if key in targets or partition.commit_timestamp != NO_COMMIT_TIME or is_too_long(metadata, config):
                return None
            record = records.offset_records(body.group_id, *key, partition.committed_leader_epoch, metadata)
            targets[key] = Target(*key, partition.committed_leader_epoch, metadata, record)
            size += records.batch_size([record(0, 0)]) - records.BATCH_OVERHEAD
    if body.retention_time_ms != BROKER_RETENTION or size > config.message_max_bytes:
        return None
    generation = body.generation_id_or_member_epoch
    return CommitTemplate(
        body.group_id, body.member_id, body.group_instance_id, generation, list(targets.values()), size
    )


def commit_error(group: Group, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
    """NONE if the group takes a commit (Kafka: validateOffsetCommit; KAFKA-14201)."""
    state = group.state
    if state is DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if generation < 0:
        if state is EMPTY:
            return NONE
        if member_id == UNKNOWN_MEMBER_ID and instance_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
    error = member_error(group, member_id, instance_id)
    if error is not NONE:
        return error
    if generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    # Before its sync, the member has the new generation but no assignment yet (KAFKA-8487).
    return ErrorCode.REBALANCE_IN_PROGRESS if state is COMPLETING_REBALANCE else NONE


def add_offsets(
    offsets: dict[tuple[str, int], CommittedOffset],
    too_large: set[tuple[str, int]],
    body: OffsetCommitRequest,
    topic: str,
    partitions: Iterable[OffsetCommitRequest.OffsetCommitRequestPartition],
    config: GroupConfig,
    wall_ms: int,
) -> None:
    """Add the offsets that a commit stores for partitions of a topic, and those whose metadata is too large."""
    retention_ms = body.retention_time_ms
    for partition in partitions:
        metadata = partition.committed_metadata or ""
        if is_too_long(metadata, config):
            too_large.add((topic, partition.partition_index))
            continue
        offsets[topic, partition.partition_index] = CommittedOffset(
            partition.committed_offset,
            partition.committed_leader_epoch,
            metadata,
            wall_ms if partition.commit_timestamp == NO_COMMIT_TIME else partition.commit_timestamp,
            None if retention_ms == BROKER_RETENTION else min(wall_ms + retention_ms, INT64_MAX),
        )


def is_too_long(metadata: str, config: GroupConfig) -> bool:
    """Whether an offset's metadata is longer than the setting allows, in UTF-16 units, or than a record can hold."""
    if metadata.isascii():
        return len(metadata) > config.offset_metadata_max_bytes
    units = len(metadata.encode("utf-16-le")) // 2
    return units > config.offset_metadata_max_bytes or len(metadata.encode()) > STRING_SIZE_MAX


def fetch(
    turn: Turn, group: AnyGroup, event: FetchOffsets, error_of: Callable[[Any, str | None, int], ErrorCode]
) -> None:
    """Handle one group of an OffsetFetch. error_of: the rule of the group's kind that says who may ask.

    The runtime holds this answer until the offsets in it are durable. One that a transaction will change is unstable
    (KIP-447).
    """
    error = error_of(group, event.member_id, event.member_epoch)
    if error is not NONE:
        turn.refuse(event, error)
        return
    if event.topics is None:
        wanted = [(topic, list(partitions)) for topic, partitions in group.offsets.items()]
    else:
        wanted = [(topic.name, topic.partition_indexes) for topic in event.topics if topic.partition_indexes]
    answer = OffsetFetchResponse.OffsetFetchResponseGroup(group_id=group.group_id, topics=[])
    may_wait = event.require_stable and group.pending_offsets is not NO_PENDING
    for topic, partitions in wanted:
        # A partition that is asked for again is the same struct: its metadata is encoded once.
        found = {partition: fetched(group, topic, partition, may_wait=may_wait) for partition in partitions}
        answer.topics.append(
            OffsetFetchResponse.OffsetFetchResponseTopics(name=topic, partitions=[found[each] for each in partitions])
        )
    turn.answer(event.request, answer)


def fetched(
    group: AnyGroup, topic: str, partition: int, *, may_wait: bool
) -> OffsetFetchResponse.OffsetFetchResponsePartitions:
    """The committed offset of a topic partition, as OffsetFetch answers it.

    may_wait: the client waits for an open transaction that has committed it.
    """
    committed = group.offsets.get(topic, {}).get(partition)
    is_unstable = may_wait and pending.is_pending(group, topic, partition)
    if committed is None or is_unstable:
        return OffsetFetchResponse.OffsetFetchResponsePartitions(
            partition_index=partition,
            committed_offset=NO_OFFSET,
            committed_leader_epoch=NO_LEADER_EPOCH,
            metadata="",
            error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT if is_unstable else NONE,
        )
    return OffsetFetchResponse.OffsetFetchResponsePartitions(
        partition_index=partition,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )


def holds(group: AnyGroup, topic: str, partition: int) -> bool:
    """Whether a group has an offset of a topic partition, committed or pending."""
    return partition in group.offsets.get(topic, {}) or pending.is_pending(group, topic, partition)


def delete(turn: Turn, group: AnyGroup, event: DeleteOffsets) -> None:
    """Handle an OffsetDelete (KIP-496).

    An Empty group lets go of any offset, a group of consumers of offsets in topics that it isn't subscribed to.
    """
    if group.state is DEAD:
        turn.refuse(event, ErrorCode.GROUP_ID_NOT_FOUND)
        return
    empty = group.state is EMPTY
    if not empty and group.protocol_type != CONSUMER:
        turn.refuse(event, ErrorCode.NON_EMPTY_GROUP)
        return
    topics, removed = [], []
    for topic in event.body.topics:
        allowed = empty or not group.is_subscribed(topic.name)
        indexes = [partition.partition_index for partition in topic.partitions]
        if allowed:
            removed += [(topic.name, index) for index in indexes if holds(group, topic.name, index)]
        error = ErrorCode.NONE if allowed else ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        topics.append(
            OffsetDeleteResponse.OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponse.OffsetDeleteResponsePartition(partition_index=index, error_code=error)
                    for index in indexes
                ],
            )
        )
    remove(turn, group, list(dict.fromkeys(removed)), event.client)
    turn.answer(event.request, OffsetDeleteResponse(error_code=ErrorCode.NONE, topics=topics))


def remove(
    turn: Turn,
    group: AnyGroup,
    topic_partitions: list[tuple[str, int]],
    client: Client | None = None,
    *,
    expired: bool = False,
) -> None:
    """Remove offsets, committed and pending ones, each with a tombstone. client: the one that asked for it."""
    if not topic_partitions:
        return
    pending.forget(group, topic_partitions)
    for topic, partition in topic_partitions:
        partitions = group.offsets.get(topic, {})
        partitions.pop(partition, None)
        if not partitions:
            group.offsets.pop(topic, None)
        turn.append(records.offset_tombstone(group.group_id, topic, partition, turn.now.wall_ms))
    turn.note(notes.OffsetsRemoved(group.group_id, group.generation, tuple(topic_partitions), expired, client))


def erase(turn: Turn, group: AnyGroup, event: EraseOffsets) -> None:
    """Handle an EraseOffsets. group: the one that has the id of the deleted group now, or an empty one."""
    loaded = []
    for topic, partition, deleted in event.offsets:
        committed = group.offsets.get(topic, {}).get(partition)
        if committed is None:
            turn.append(records.offset_tombstone(event.group_id, topic, partition, turn.now.wall_ms))
        elif committed == deleted:
            loaded.append((topic, partition))
    remove(turn, group, loaded, event.client)


def expired(turn: Turn, group: AnyGroup, topic_partitions: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """The committed offsets among these whose retention is over (KIP-211; Kafka: GroupMetadata.removeExpiredOffsets).

    Empty group              the retention counts from when the group became empty
    Stable, of consumers     from the commit, unless the group is subscribed to the topic
    simple group             from the commit
    a group that rebalances  loses no offset (KAFKA-13636)
    """
    spared: frozenset[str] = frozenset()
    since_ms: int | None = None
    if group.protocol_type is not None and group.state is EMPTY:
        since_ms = group.state_since_ms
    elif group.protocol_type == CONSUMER and group.state is STABLE and group.subscribed_topics is not None:
        spared = group.subscribed_topics
    elif group.protocol_type is not None:
        return []
    return [
        (topic, partition)
        for topic, partition in topic_partitions
        if topic not in spared
        and not pending.is_pending(group, topic, partition)
        and is_expired(turn, group.offsets[topic][partition], since_ms)
    ]


def is_expired(turn: Turn, committed: CommittedOffset, since_ms: int | None) -> bool:
    """Whether an offset is past its own expiry, or past the broker's retention.

    since_ms: where the broker's retention begins, Unix time in ms; None: with the commit.
    """
    if committed.expire_ms is not None:
        return turn.now.wall_ms >= committed.expire_ms
    base_ms = committed.commit_ms if since_ms is None else since_ms
    return turn.now.wall_ms - base_ms >= turn.config.offsets_retention_ms
