"""The logs give out each producer id once, even if files are lost."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from coordinator.config import INT64_MAX
from coordinator.log.engine import Unavailable
from coordinator.log.segments.disk import Disk
from coordinator.log.segments.lock import Lock
from coordinator.log.topics.producer_ids import IDS_PER_BLOCK, PRODUCER_IDS_NAME
from tests.log.disks import FailingDisk
from tests.log.topics.caller import Caller, part
from tests.log.topics.test_log import NOW_MS


def producer_id(caller: Caller, now_ms: int = NOW_MS) -> Callable[[], int]:
    """Return a call that gives out an id."""
    return partial(caller.logs.producer_id, now_ms)


def test_ids_of_a_folder_that_lost_them_are_not_given_out_again(caller: Caller, tmp_path: Path) -> None:
    """Without the file, or with an older copy, no id comes again: a new producer's records would count as repeats."""
    first = caller.ask(producer_id(caller))
    caller.append(part(), 0)
    older = (tmp_path / PRODUCER_IDS_NAME).read_bytes()
    caller.logs.close()
    for content in (older, b"", b"damage", None):
        (tmp_path / PRODUCER_IDS_NAME).unlink()
        if content is not None:
            (tmp_path / PRODUCER_IDS_NAME).write_bytes(content)
        caller = Caller(tmp_path)
        assert caller.ask(producer_id(caller, NOW_MS + IDS_PER_BLOCK)) >= first + IDS_PER_BLOCK
        caller.logs.close()


def test_what_was_noted_in_ten_digits_counts(tmp_path: Path) -> None:
    """A file with ten digits counts."""
    (tmp_path / PRODUCER_IDS_NAME).write_bytes(b"9999999000\n")
    caller = Caller(tmp_path)
    assert caller.ask(producer_id(caller, 5)) == 9_999_999_000
    caller.logs.close()
    caller = Caller(tmp_path)
    assert caller.ask(producer_id(caller, 5)) == 10_000_000_000
    caller.logs.close()


def test_a_number_that_no_id_can_follow_is_no_note(tmp_path: Path) -> None:
    """A note behind the last int64, or just before it, is none: the ids go on from the clock."""
    for noted in (b"9" * 19, b"%d" % (INT64_MAX - IDS_PER_BLOCK + 1)):
        (tmp_path / PRODUCER_IDS_NAME).write_bytes(noted)
        caller = Caller(tmp_path)
        assert caller.ask(producer_id(caller)) == NOW_MS
        caller.logs.close()


def test_producer_ids_are_given_out_once(tmp_path: Path) -> None:
    """Each id is given out once: within a server, after a restart, and by two workers of one folder."""
    ids: list[int] = []
    for _ in range(3):
        caller, other = Caller(tmp_path), Caller(tmp_path)
        for _ in range(IDS_PER_BLOCK + 2):
            ids.append(caller.ask(producer_id(caller)))
        ids.append(other.ask(producer_id(other)))
        caller.logs.close()
        other.logs.close()
    assert len(set(ids)) == len(ids)


def test_a_producer_id_that_is_not_durable_is_not_given_out(tmp_path: Path) -> None:
    """A worker gives out no id that isn't durable, and none while another worker takes some."""
    disk = FailingDisk(lambda name, _number: OSError(5, "Input/output error") if name == "fdatasync" else None)
    caller = Caller(tmp_path, disk)
    assert isinstance(caller.ask(producer_id(caller)), Unavailable)
    disk.fails = lambda _name, _number: None
    lock = Lock(Disk(), tmp_path / PRODUCER_IDS_NAME)
    assert isinstance(caller.ask(producer_id(caller)), Unavailable)
    lock.release()
    assert isinstance(caller.ask(producer_id(caller)), int)
    caller.logs.close()
