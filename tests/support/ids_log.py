"""Adds a record to `__transaction_state` of a stopped server, as the server would have: its state is rare, or far away.

House rule: nothing but the last record of one transactional id is added.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from coordinator.group.partition import partition_for
from coordinator.log.segments.disk import Disk
from coordinator.log.segments.segment import TRANSACTIONS_TOPIC, list_segments, partition_folder, read_frames
from coordinator.transaction.records import decode_id, record_of, transactional_id_of
from coordinator.transaction.state import Status, TransactionalId
from protocol.records.batch import encode_batch
from protocol.records.walk import decode_records


def change_id(
    folder: Path,
    transactional_id: str,
    partition_count: int,
    change: Callable[[TransactionalId], None],
    later_ms: int = 0,
) -> None:
    """Write that an id is as `change` makes it.

    partition_count: of `__transaction_state`. later_ms: how much later than the newest record of that partition the
    record is.
    """
    disk = Disk()
    partition = partition_folder(folder, partition_for(transactional_id, partition_count), TRANSACTIONS_TOPIC)
    path = list_segments(disk, partition)[-1].path
    with path.open("r+b") as file:
        frames = list(read_frames(disk, file.fileno(), path.stat().st_size))
        records = [each for frame in frames for each in decode_records(frame.data, frame.at, frame.header).records]
        value = next(each.value for each in reversed(records) if transactional_id_of(each.key) == transactional_id)
        assert value is not None
        known = decode_id(transactional_id, value)
        change(known)
        header = frames[-1].header
        record = record_of(known, records[-1].timestamp_ms + later_ms, int.from_bytes(value[:2]))
        file.seek(frames[-1].position + header.size)
        file.write(encode_batch([record], header.next_offset, header.partition_leader_epoch))
        file.truncate()


def prepare(
    folder: Path, transactional_id: str, partition_count: int, *, raises_epoch: bool, later_ms: int = 0
) -> None:
    """Write that the open transaction of an id is to be committed: its end was answered, its markers are not written.

    raises_epoch: as EndTxn v5 does.
    """

    def change(known: TransactionalId) -> None:
        assert known.status is Status.ONGOING
        known.status = Status.PREPARE_COMMIT
        known.epoch += raises_epoch

    change_id(folder, transactional_id, partition_count, change, later_ms)
