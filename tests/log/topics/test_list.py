"""The list of topics is the former or the new one after any failure; a damaged list is refused."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.log.engine import Damaged, Unavailable
from coordinator.log.topics.list import Topic, TopicsFile, declare, kafka_id
from tests.log.disks import CrashingDisk, FailingDisk, Killed

ORDERS = Topic("orders", UUID(int=1), 12, {"retention.ms": "1000"})
PAYMENTS = Topic("payments", UUID(int=2**128 - 1), 1)

topics_strategy = st.lists(
    st.builds(
        Topic,
        st.text(min_size=1),
        st.uuids(),
        st.integers(1, 2**31 - 1),
        st.dictionaries(st.text(), st.text(), max_size=3),
    ),
    unique_by=lambda topic: topic.name,
)


def test_no_file(tmp_path: Path) -> None:
    """Before the first save there is no list, which differs from an empty one."""
    assert TopicsFile(tmp_path).load() is None
    TopicsFile(tmp_path).save([])
    assert TopicsFile(tmp_path).load() == {}


@given(topics_strategy)
def test_what_was_saved_is_loaded(tmp_path_factory: pytest.TempPathFactory, topics: list[Topic]) -> None:
    """Another object loads all names and settings that one saved; an earlier list leaves no trace."""
    folder = tmp_path_factory.mktemp("data")
    file = TopicsFile(folder)
    file.save([ORDERS, PAYMENTS])
    file.save(topics)
    assert TopicsFile(folder).load() == {topic.name: topic for topic in topics}
    assert [path.name for path in folder.iterdir()] == ["topics.json"]


def test_damage(tmp_path: Path) -> None:
    """After any changed byte, cut end or added byte, a load refuses the list and names the file."""
    file = TopicsFile(tmp_path)
    file.save([ORDERS, PAYMENTS])
    path = tmp_path / "topics.json"
    content = path.read_bytes()
    changed = [content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :] for at in range(len(content))]
    cut = [content[:size] for size in range(len(content))]
    for damaged in (*changed, *cut, content + b"\n"):
        path.write_bytes(damaged)
        with pytest.raises(Damaged, match=r"topics\.json"):
            file.load()
    path.write_bytes(content)
    assert file.load() == {"orders": ORDERS, "payments": PAYMENTS}


def failing(chosen: tuple[str, int], *, lasts: bool) -> Callable[[str, int], OSError | None]:
    """Return a `fails` for one call, and for all behind it if it `lasts`."""
    failed = False

    def fails(name: str, number: int) -> OSError | None:
        nonlocal failed
        failed = (failed and lasts) or (name, number) == chosen
        return OSError(errno.ENOSPC, "No space left on device") if failed else None

    return fails


@pytest.mark.parametrize("name", ["open", "write", "fdatasync", "close", "rename", "sync_folder"])
@pytest.mark.parametrize("lasts", [True, False])
def test_save_that_fails(tmp_path: Path, name: str, lasts: bool) -> None:
    """If any call of a save fails, even for good, a load finds the former list or the new one.

    A later save succeeds.
    """
    file = TopicsFile(tmp_path)
    file.save([ORDERS])
    disk = FailingDisk(failing((name, 1), lasts=lasts))
    saved = {"orders": ORDERS, "payments": PAYMENTS}
    if name == "close":  # the bytes are durable before it
        with suppress(Unavailable):
            TopicsFile(tmp_path, disk).save(saved.values())
    else:
        with pytest.raises(Unavailable, match="No space left on device"):
            TopicsFile(tmp_path, disk).save(saved.values())
    assert file.load() in ({"orders": ORDERS}, saved)
    assert disk.descriptors == set()
    file.save([PAYMENTS])
    assert file.load() == {"payments": PAYMENTS}


@pytest.mark.parametrize("name", ["open", "size", "read"])
def test_load_that_fails(tmp_path: Path, name: str) -> None:
    """A load that fails raises an error, and doesn't return an empty list."""
    TopicsFile(tmp_path).save([ORDERS])
    with pytest.raises(Unavailable):
        TopicsFile(tmp_path, FailingDisk(failing((name, 1), lasts=False))).load()


def test_power_cut(tmp_path: Path) -> None:
    """If the power fails in a save, a load finds the former list or the new one; after the save, the new one."""
    for number in range(1, 20):
        for seed in range(20):
            folder = tmp_path / f"{number}-{seed}"
            folder.mkdir()
            TopicsFile(folder).save([ORDERS])
            disk = CrashingDisk(Random(seed))

            def fails(_name: str, _number: int, number: int = number, disk: CrashingDisk = disk) -> Killed | None:
                return Killed() if disk.calls.total() == number else None

            disk.fails = fails
            lists = [{"payments": PAYMENTS}]
            try:
                TopicsFile(folder, disk).save([PAYMENTS])
            except Killed:
                lists.append({"orders": ORDERS})
            disk.crash()
            assert TopicsFile(folder).load() in lists


def test_what_is_declared_is_created_or_grows() -> None:
    """tenure.topics creates missing topics, and adds partitions to existing ones; a topic never shrinks."""
    grown = Topic("grows", UUID(int=1), 2, {"retention.ms": "1"})
    more = Topic("more", UUID(int=3), 5)
    there = {"grows": grown, "stays": Topic("stays", UUID(int=2), 1), "more": more}
    counts = {"grows": 4, "stays": 1, "more": 3, "new": 2}
    declared, too_few = declare(there, counts, lambda: UUID(int=9))
    assert declared == [Topic("grows", UUID(int=1), 4, {"retention.ms": "1"}), Topic("new", UUID(int=9), 2)]
    assert too_few == [(more, 3)]


@pytest.mark.parametrize("number", [0, 2**128 - 1, 0xF8 << 120])
def test_ids_are_written_as_kafka_does(number: int) -> None:
    """A topic id is 22 characters of base 64, and doesn't begin like an option of a command."""
    text = kafka_id(UUID(int=number))
    assert len(text) == 22
    assert not text.startswith("-")
