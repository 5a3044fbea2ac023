"""Tests reports of a torn tail, and of the beginning and the end of a disk's failures."""

from __future__ import annotations

import errno
from pathlib import Path

from coordinator.log.engine import Unavailable
from coordinator.log.segments.segment import partition_folder
from tests.log.calls import (
    Events,
    append,
    load,
    opened,
    record,
)
from tests.log.disks import FailingDisk
from tests.log.embedded.test_engine import running


def test_torn_tail_is_said(tmp_path: Path) -> None:
    """The report of a torn tail says where it was cut, and how many bytes."""
    events = Events()
    with running(tmp_path) as engine:
        own, _ = opened(engine, 3)
        assert append(engine, own, record(1)) is None
    segment = partition_folder(tmp_path, 3) / "00000000000000000000.log"
    size = segment.stat().st_size
    with segment.open("ab") as file:
        file.write(bytes(77))
    with running(tmp_path, report=events) as engine:
        assert opened(engine, 3)[1] == [record(1)]
    assert events == [("tail_cut", {"partition": 3, "file": str(segment), "position": size, "size": 77})]
    assert segment.stat().st_size == size


def test_said_once_until_it_works(tmp_path: Path, disk: FailingDisk) -> None:
    """The engine reports once that a partition is Unavailable, not at each attempt, and once that it works again."""
    events = Events()
    with running(tmp_path, disk=disk, report=events) as engine:
        own, _ = opened(engine, 5)
        disk.fails = lambda name, _number: OSError(errno.EIO, "Input/output error") if name == "fdatasync" else None
        assert append(engine, own, record(1)) is not None
        assert append(engine, own, record(1)) is not None
        for _ in range(3):
            assert isinstance(load(engine, own)[1], Unavailable)
            assert str(append(engine, own, record(1))) == "Input/output error"
        disk.fails = lambda _name, _number: None
        assert load(engine, own) == ([], None)
        assert append(engine, own, record(1)) is None
    unavailable = ("partition_unavailable", {"partition": 5, "reason": "Input/output error"})
    assert events == [unavailable, ("partition_available", {"partition": 5})]
