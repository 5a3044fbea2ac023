"""Replay: turns the records of a partition, in their order, into its groups.

`Replay` keeps the last value of each key undecoded, and decodes the rest group by group, whatever their kind.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from coordinator.group import records
from coordinator.group.any_group import NO_PENDING, AnyGroup, CommittedOffset, PendingOffsets
from coordinator.group.consumer.records import FORMS, PARTITIONS, Reader
from coordinator.group.group import Group
from protocol.errors import ProtocolError
from protocol.messages import GroupMetadataKey, OffsetCommitKey, decode
from protocol.records.batch import Batch, Record

INT16 = struct.Struct(">h")
"""The version that each key begins with."""


class Replay:
    """Turns the records of a partition, in their order, into its groups.

    skipped: how many records have a key version that this coordinator doesn't know, by version (KIP-915).
    """

    def __init__(self) -> None:
        self._last: dict[bytes, dict[bytes, bytes]] = {}
        self.skipped: dict[int, int] = {}
        self._pending: dict[str, PendingOffsets] = {}
        self._places = 0

    def add(self, page: Iterable[Record]) -> None:
        """Take the next records. Raises ProtocolError for a key too short for a version.

        A `Batch` has records of a transaction that is open at the end of the log, in the order of their places.
        """
        if isinstance(page, Batch):
            self._add_pending(page)
            return
        for key, value, _ in page:
            if key[:2] not in _KNOWN_KEYS:
                if len(key) < INT16.size:
                    raise ProtocolError(f"a record key of {len(key)} bytes")
                version: int = INT16.unpack_from(key)[0]
                self.skipped[version] = self.skipped.get(version, 0) + 1
            else:
                # Behind the version, each of these keys begins with the group id: its length, then its bytes.
                group_id = key[2 : 4 + int.from_bytes(key[2:4])]
                if value is not None:
                    self._last.setdefault(group_id, {})[key] = value
                elif group_id in self._last:
                    self._last[group_id].pop(key, None)

    def _add_pending(self, batch: Batch) -> None:
        for record in batch:
            if record.key[:2] in _OFFSET_KEYS:
                self._places += 1
                group_id, offset = _read_pending(record)
                self._pending.setdefault(group_id, PendingOffsets()).add(batch.producer_id, self._places, offset)

    def groups(self) -> Iterator[AnyGroup]:
        """Yield each group once: Stable or Empty, no timers armed. Raises ProtocolError for bytes it can't decode."""
        return (group for group in self.groups_in_steps() if group is not None)

    def groups_in_steps(self) -> Iterator[AnyGroup | None]:
        """As `groups`, and None behind each DECODED_AT_ONCE offsets of a group, which may have very many.

        It decodes a group when the caller asks for the next one, and drops its records. So a caller can pause in
        between.
        """
        for group_id in list(self._last):
            values = self._last.pop(group_id)
            if values:
                yield from map(self._with_pending, _decode_group_records(values))
        for group_name in list(self._pending):
            yield self._with_pending(Group(group_name, None))

    def _with_pending(self, group: AnyGroup | None) -> AnyGroup | None:
        if group is not None and self._pending:
            group.pending_offsets = self._pending.pop(group.group_id, NO_PENDING)
        return group

    def size_of(self, group: AnyGroup) -> int:
        """How many parts of a group `groups_in_steps` has decoded since it yielded last."""
        return 1 + group.size + sum(map(len, group.offsets.values())) % DECODED_AT_ONCE


DECODED_AT_ONCE = 100
"""Records of one group that are decoded in one step: half a millisecond."""


def _decode_group_records(values: dict[bytes, bytes]) -> Iterator[AnyGroup | None]:
    """Yield None behind each step, and the group of these records at last. values: by key, at least one."""
    found = _Found()
    keys = deque(values)
    while keys:
        # Each record is freed with its step: a million at once take 0.4 s.
        key = keys.popleft()
        version: int = INT16.unpack_from(key)[0]
        _READERS[version](found, version, key, values.pop(key))
        if keys and len(keys) % DECODED_AT_ONCE == 0:
            yield None
    # A group that only stores offsets has no record of its own (Kafka: simple group).
    group = found.group or (yield from found.consumer.group()) or Group(found.group_id, None)
    group.offsets = found.offsets
    yield group


def _read_pending(record: Record) -> tuple[str, dict[tuple[str, int], CommittedOffset | None]]:
    """The group id of a record in an open transaction, and its offset by topic partition. Raises ProtocolError.

    A tombstone is no commit: it leaves nothing to commit.
    """
    name = decode(OffsetCommitKey, record.key, INT16.unpack_from(record.key)[0], INT16.size)
    committed = None if record.value is None else records.decode_offset(record.value)
    return name.group, {(name.topic, name.partition): committed}


class _Found:
    """The state of one group after the records so far."""

    def __init__(self) -> None:
        self.group: Group | None = None
        self.consumer = Reader()
        self.group_id = ""
        self.offsets: dict[str, dict[int, CommittedOffset]] = {}

    def read_group(self, version: int, key: bytes, value: bytes) -> None:
        """The record of a classic group."""
        self.group = records.decode_group(decode(GroupMetadataKey, key, version, INT16.size).group, value)

    def read_offset(self, version: int, key: bytes, value: bytes) -> None:
        """The record of a committed offset; groups of every kind have them."""
        name = decode(OffsetCommitKey, key, version, INT16.size)
        self.group_id = name.group
        self.offsets.setdefault(name.topic, {})[name.partition] = records.decode_offset(value)


_READERS: dict[int, Callable[[_Found, int, bytes, bytes], None]] = {
    0: _Found.read_offset,
    records.OFFSET_KEY_VERSION: _Found.read_offset,
    records.GROUP_KEY_VERSION: _Found.read_group,
    **dict.fromkeys(FORMS, lambda found, *record: found.consumer.read(*record)),
    PARTITIONS: lambda *_: None,  # topics of a group, which Kafka up to 4.0 wrote: nothing needs them
}
"""The reader of a record, by the version of its key. `Replay.skipped` counts other records (KIP-915)."""
_KNOWN_KEYS = frozenset(map(INT16.pack, _READERS))
_OFFSET_KEYS = frozenset(map(INT16.pack, (0, records.OFFSET_KEY_VERSION)))
