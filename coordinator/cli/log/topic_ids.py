"""Topics, when a log moves: groups of the consumer protocol (KIP-848) know them by ids, and each server makes its own.

Import takes the broker's topics over: names, ids, and numbers of partitions, as the folders of their partitions have
them. Records and settings of topics stay behind.

Export writes the ids of the broker's topics in place of those that topics of the same names have in Tenure: into the
target and the current assignment of each member, and into the hash of the topics that a group subscribes to. So the
broker finds the group as it was: it makes no new target, and moves no partition. If a topic isn't in the broker's
folder, or has another number of partitions there, the hash differs, and the broker makes a new target at once.

House rule: nothing is written here; ids and hashes keep their size, so records do too.
"""

from __future__ import annotations

import binascii
import struct
from base64 import urlsafe_b64decode
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from uuid import UUID

from coordinator.config import TOPIC_PARTITIONS_MAX
from coordinator.group.consumer.group import ConsumerGroup
from coordinator.group.consumer.records import CURRENT, EPOCH, TARGET
from coordinator.group.replay import Replay
from coordinator.group.topics import TopicImage, TopicTable, metadata_hash
from coordinator.log.engine import EngineError
from coordinator.log.segments.outside import JournalsBeside, Log, NoBatch, opened, read_segment
from coordinator.log.segments.segment import OFFSETS_TOPIC, topic_partition_of
from coordinator.log.topics.folders import OWNER_NAME, owner_of
from coordinator.log.topics.list import Topic, TopicsFile
from coordinator.story.records.consumer import CONSUMER_VERSIONS
from protocol.primitives import encode_string
from protocol.records.batch import peek_header
from protocol.records.rewrite import RecordSlice, encode_slices, slice_records
from protocol.records.walk import decode_records

KAFKAS_OWN = frozenset({OFFSETS_TOPIC, "__transaction_state", "__share_group_state", "__cluster_metadata"})
"""Topics that each broker makes for itself."""

_KEYS = frozenset(struct.pack(">h", version) for version in CONSUMER_VERSIONS.values())
_ASSIGNMENTS = frozenset(struct.pack(">h", version) for version in (TARGET, CURRENT))
_EPOCH = struct.pack(">h", EPOCH)
_HASH = struct.Struct(">3sq")
_HASH_START = b"\1\0\x08"
"""The bytes before the hash in a group's record: one tagged field, its tag, its size."""


def broker_topics(kafka_dirs: Iterable[Path]) -> tuple[dict[str, Topic], list[str]]:
    """The users' topics in the log folders of brokers, by name, and notes on folders that name none. Raises OSError."""
    ids: dict[str, set[UUID]] = {}
    counts: dict[str, int] = {}
    notes = []
    for folder in sorted(folder for kafka_dir in kafka_dirs for folder in kafka_dir.iterdir()):
        found = topic_partition_of(folder.name)
        if found is None or found[0] in KAFKAS_OWN or not (folder / OWNER_NAME).exists():
            continue
        name, partition = found
        try:
            ids.setdefault(name, set()).add(UUID(bytes=urlsafe_b64decode(f"{owner_of(folder) or ''}==")))
        except (EngineError, binascii.Error, ValueError):
            notes.append(f"{folder / OWNER_NAME} has no topic id that can be read")
            continue
        counts[name] = max(counts.get(name, 0), partition + 1)
    topics = {}
    for name, of_name in ids.items():
        if counts.get(name, 0) > TOPIC_PARTITIONS_MAX:
            notes.append(
                f"topic {name} is left out: its folders show {counts[name]} partitions, "
                f"and a topic has at most {TOPIC_PARTITIONS_MAX}"
            )
        elif len(of_name) == 1:
            topics[name] = Topic(name, of_name.pop(), counts[name])
        elif of_name:
            notes.append(f"topic {name} is left out: its folders have {len(of_name)} ids")
    return topics, notes


class NewIds:
    """Puts the ids of a broker's topics into batches.

    ids: Tenure's -> the broker's, where they differ. hashes: by group id, the hash of its topics with the broker's ids,
    if the group's own is that of Tenure's topics.
    """

    def __init__(self, ids: Mapping[UUID, UUID], hashes: Mapping[str, int]) -> None:
        self._ids = {ours.bytes: theirs.bytes for ours, theirs in ids.items()}
        self._hashes = {_EPOCH + encode_string(group_id): value for group_id, value in hashes.items()}

    def put(self, batch: bytes) -> bytes:
        """The batch with the broker's ids; the same bytes if it has no other ones."""
        header = peek_header(batch)
        if header.is_control or header.is_transactional:
            return batch
        slices = slice_records(batch, 0, header)
        changed = [self._record(each) for each in slices]
        return batch if changed == slices else encode_slices(header, changed)

    def _record(self, record: RecordSlice) -> RecordSlice:
        key = record.key
        if key is None or record.is_tombstone or key[:2] not in _KEYS:
            return record
        value_at = record.data.index(key) + len(key)
        value = record.data[value_at:]
        if key[:2] in _ASSIGNMENTS:
            for ours, theirs in self._ids.items():
                value = value.replace(ours, theirs)
        elif key in self._hashes:
            at = value.find(_HASH_START)
            if at >= 0:
                value = value[:at] + _HASH.pack(_HASH_START, self._hashes[key]) + value[at + _HASH.size :]
        return record._replace(data=record.data[:value_at] + value)


def new_ids(data_dir: Path, logs: Sequence[Log], kafka_dir: Path) -> tuple[NewIds | None, list[str]]:
    """The ids to put into the logs of `data_dir`, None if all are right; and notes on topics that differ.

    Raises OSError and EngineError.
    """
    journals = JournalsBeside()
    groups = [group for log in logs for group in _consumer_groups(log, journals)]
    ours = TopicsFile(data_dir).load() or {}
    theirs, _ = broker_topics([kafka_dir])
    used = sorted({name for group in groups for name in group.subscribed_names()} & ours.keys())
    notes = []
    for name in used:
        if name not in theirs:
            notes.append(f"topic {name} isn't in {kafka_dir}: the broker makes a new target for the groups that use it")
        elif theirs[name].partition_count != ours[name].partition_count:
            notes.append(
                f"topic {name} has {ours[name].partition_count} partitions, {theirs[name].partition_count} in "
                f"{kafka_dir}: the broker makes a new target for the groups that use it"
            )
    ids = {
        topic.topic_id: theirs[name].topic_id
        for name, topic in ours.items()
        if name in theirs and theirs[name].topic_id != topic.topic_id
    }
    if not groups or not ids:
        return None, notes
    before = TopicTable(TopicImage(topic.topic_id, topic.name, topic.partition_count) for topic in ours.values())
    after = TopicTable(
        TopicImage(ids.get(topic.topic_id, topic.topic_id), topic.name, topic.partition_count)
        for topic in ours.values()
    )
    hashes = {
        group.group_id: metadata_hash(after, set(group.subscribed_names()))
        for group in groups
        if group.metadata_hash == metadata_hash(before, set(group.subscribed_names()))
    }
    return NewIds(ids, hashes), notes


def _consumer_groups(log: Log, journals: JournalsBeside) -> list[ConsumerGroup]:
    """The groups of the consumer protocol in a log that was verified."""
    replay = Replay()
    with opened(log, journals) as segments:
        for segment in segments:
            for found in read_segment(segment):
                if not isinstance(found, NoBatch) and not found.header.is_control:
                    batch = decode_records(found.data, found.at, found.header)
                    replay.add(record for record in batch.records if record.key[:2] in _KEYS)
    return [group for group in replay.groups() if isinstance(group, ConsumerGroup)]
