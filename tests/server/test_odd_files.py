"""Each file of a data folder, and what can be wrong with it: what the next start says, and what it serves.

The folder is that of a server that was killed, so that its journal is there. Each case puts something else in the place
of one file. The server then starts, serves all but one partition, or refuses to start in one line. A refused start
leaves nothing behind. Afterwards the test follows the advice of the line, and the server serves what the segments have.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from coordinator.cli.log.verify import Summary, verify
from coordinator.config import Config
from coordinator.group.partition import partition_for
from coordinator.log.advice import advice
from coordinator.log.embedded import journal
from coordinator.log.segments.disk import Disk
from coordinator.log.segments.journal import Extent, leave
from coordinator.log.segments.outside import find_logs
from coordinator.log.segments.segment import TRANSACTIONS_TOPIC, list_segments, partition_folder
from coordinator.server.app import Server, StartFailed
from protocol.messages import InitProducerIdRequest
from protocol.records.batch import peek_header
from schemas.errors import ErrorCode
from tests.server.harness import ManualClock, Peer, Serving, config_of, seat
from tests.server.requests.test_records import ONE, produce
from tests.support.length import most_are_long

GROUPS = "abcdefgh"
ID = "billing"
"""A transactional id."""
JOURNAL, LEFT, SEGMENT = ".journal-1.0", ".journal-left-0.0", "__consumer_offsets-0/00000000000000000000.log"
RIGHTS, PAGE = "give the user that the server runs as", "docs/run/disk-trouble.md"
NOBODY = 65_534
"""A uid that may not use files of mode 0, as root may."""


class Image(NamedTuple):
    """A folder to copy. others: the groups that aren't on partition 0."""

    folder: Path
    others: str


class Started(NamedTuple):
    """The result of a start. refused: why it was, empty if it wasn't. groups: those that were loaded."""

    refused: str
    groups: str
    trouble: list[str]


def _settings(folder: Path) -> list[str]:
    return [f"log.dirs={folder}", "tenure.journal.enable=true"]


async def _start(folder: Path) -> Started:
    """Start a server on a folder, and stop it when it has loaded what it can."""
    log = io.StringIO()
    server = Server(config_of(*_settings(folder)), log=log)
    try:
        await server.start()
    except StartFailed as error:
        return Started(str(error), "", [])
    serving = Serving(server, ManualClock(), log)

    def is_over() -> bool:
        refused = {"partition_refused", "partition_damaged"}
        return server.loaded.is_set() or bool(refused & {line["event"] for line in serving.events()})

    await serving.until(is_over)
    await serving.until(lambda: not serving._is_at_work())
    serving.close_peers()
    await server.stop()
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    groups = sorted(line["group"] for line in lines if line["event"] == "group_loaded")
    return Started("", "".join(groups), [line["message"] for line in lines if line["level"] in {"warn", "error"}])


async def init(peer: Peer, transactional_id: str | None) -> int:
    """The error of InitProducerId: for a transactional id, when its coordinator has loaded."""
    asked = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=1_000)
    error_code = (await peer.ask(asked, 4)).error_code
    while transactional_id is not None and error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        error_code = (await peer.ask(asked, 4)).error_code
    return int(error_code)


async def _killed(folder: Path, image: Path) -> str:
    """Use a folder, and copy it as a kill would leave it; return the groups that aren't on partition 0."""
    log = io.StringIO()
    server = Server(config_of(*_settings(folder)), log=log)
    await server.start()
    serving = Serving(server, ManualClock(), log)
    await serving.loaded()
    peer = await serving.peer()
    for group in GROUPS:
        await seat(peer, group, "i")
    (produced,) = await produce(peer, ("orders", 0, ONE))
    assert produced.error_code == ErrorCode.NONE
    assert await init(peer, None) == ErrorCode.NONE
    assert await init(peer, ID) == ErrorCode.NONE
    await serving.at_rest()
    shutil.copytree(folder, image)
    others = [group for group in GROUPS if server.runtime.partition_of(group).index != 0]
    serving.close_peers()
    await server.stop()
    return "".join(others)


@pytest.fixture(scope="module", autouse=True)
def segments_have_all() -> Iterator[None]:
    """A server at rest has written its segments: the table tells apart what segments have and what the journal has."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "WRITE_S", 0.0)
        yield


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    """The folder of a server that was killed."""
    folder = tmp_path_factory.mktemp("image")
    return Image(folder / "image", asyncio.run(_killed(folder / "used", folder / "image")))


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _link(path: Path) -> None:
    elsewhere = path.with_name(".elsewhere")
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


def _replaced(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        _remove(path)
        make(path)

    return damage


def _sparse(path: Path) -> None:
    size = path.stat().st_size
    path.write_bytes(b"")
    os.truncate(path, size)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: os.truncate(path, path.stat().st_size // 2),
    "sparse": _sparse,
    "a folder": _replaced(Path.mkdir),
    "a link": _link,
    "a link to nothing": _replaced(lambda path: path.symlink_to("nowhere")),
    "a fifo": _replaced(os.mkfifo),
    "without rights": lambda path: path.chmod(0),
}
SERVES, REFUSED, PARTITION = "serves all", "is refused", "serves the other partitions"
IN_ITS_WAY = {"a folder", "a link", "a link to nothing", "a fifo", "without rights"}

TABLE: dict[str, dict[str, str]] = {
    # No byte of a lock counts.
    ".lock": {damage: REFUSED if damage in IN_ITS_WAY else SERVES for damage in DAMAGES},
    ".lock-0": {damage: PARTITION if damage in IN_ITS_WAY else SERVES for damage in DAMAGES},
    "meta.properties": dict.fromkeys(DAMAGES, REFUSED),
    "topics.json": dict.fromkeys(DAMAGES, REFUSED),
    # A link leads to the same windows, and is removed like the file.
    JOURNAL: dict.fromkeys(DAMAGES, REFUSED) | {"a link": SERVES},
    f"{JOURNAL}.new": {"a folder": REFUSED, "a link to nothing": SERVES, "a fifo": SERVES},
    LEFT: dict.fromkeys(DAMAGES, PARTITION) | {"a link": SERVES},
    # The journal has what was cut off.
    SEGMENT: dict.fromkeys(DAMAGES, PARTITION) | {"cut": SERVES},
    # The operator may have moved the folder to another disk.
    "__consumer_offsets-0": {"a link": SERVES, "a link to nothing": PARTITION, "a fifo": PARTITION}
    | {"without rights": PARTITION},
    ".made-by-control": {"a folder": REFUSED, "a link to nothing": SERVES, "a fifo": SERVES},
}
CHECKED = {JOURNAL, LEFT, SEGMENT, "__consumer_offsets-0"}
"""What `tenure log verify` reads. It says clean of no folder whose groups a start refuses, but follows links."""
CASES = [(name, damage) for name, outcomes in TABLE.items() for damage in outcomes]
TRIED = {(name, outcome): (name, damage) for name, outcomes in TABLE.items() for damage, outcome in outcomes.items()}
"""A damage of each file for each outcome; and of one file, all damages: `make test` tries these."""


def _held() -> tuple[int, int]:
    """Threads and open files of this process."""
    return threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))


@contextmanager
def _as_somebody(folder: Path) -> Iterator[None]:
    """Run a block as a user that owns a folder, and has no right to files of mode 0."""
    if os.geteuid() != 0:
        yield
        return
    for path in (folder, *folder.rglob("*")):
        os.chown(path, NOBODY, -1, follow_symlinks=False)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def _is_clean(folder: Path) -> bool:
    """Whether `tenure log verify` finds nothing and can read all."""
    summary = Summary()
    try:
        return not list(verify(find_logs(folder), None, summary)) and not summary.unreadable
    except OSError:
        return False


@pytest.fixture
def folder(image: Image) -> Iterator[Path]:
    """A copy of the image, where each user of the machine gets to."""
    with tempfile.TemporaryDirectory() as above:
        os.chmod(above, 0o755)  # noqa: PTH101 - nothing but this test's copy is in it
        shutil.copytree(image.folder, Path(above, "data"))
        yield Path(above, "data")


@pytest.mark.parametrize(
    "case", most_are_long(CASES, lambda case: case[0] == SEGMENT or case in TRIED.values()), ids=", ".join
)
def test_each_file_and_damage(folder: Path, image: Image, case: tuple[str, str]) -> None:
    """A start says which file it can't use and what to do, leaves nothing behind, and loses nothing of the segments."""
    name, damage = case
    outcome = TABLE[name][damage]
    if name == LEFT:
        segment = list_segments(Disk(), partition_folder(folder, 0))[-1]
        leave(Disk(), folder, 0, [Extent(0, segment.base_offset, 0, [segment.path.read_bytes()])])
    path = folder / name
    before = _held()
    DAMAGES[damage](path)
    with _as_somebody(folder):
        is_clean = _is_clean(folder)
        started = asyncio.run(_start(folder))
    assert _held() == before
    assert "\n" not in started.refused
    assert name not in CHECKED or is_clean == (outcome == SERVES or (name, damage) == (SEGMENT, "a link"))
    told = started.refused or " ".join(started.trouble)
    if outcome == SERVES:
        assert (started.refused, started.groups) == ("", GROUPS)
        return
    assert str(path) in told
    assert any(text in told for text in (advice(path), RIGHTS, PAGE))
    assert bool(started.refused) == (outcome == REFUSED)
    assert started.groups == ("" if outcome == REFUSED else image.others)
    if damage == "without rights":
        path.chmod(0o700)
    else:
        stem = name.rpartition(".")[0] if name in {JOURNAL, LEFT} else name
        for each in folder.glob(f"{stem}*") if name in {JOURNAL, LEFT} else [folder / name.partition("/")[0]]:
            each.rename(folder.with_name(f"moved-{each.name}"))
    again = asyncio.run(_start(folder))
    is_gone = damage != "without rights" and name.startswith("__consumer_offsets")
    assert (again.refused, again.groups) == ("", image.others if is_gone else GROUPS)


TOPIC = {
    "orders-0/partition.metadata": IN_ITS_WAY,
    f"orders-0/{0:020}.log": IN_ITS_WAY,
    "orders-0/log-start-offset-checkpoint": IN_ITS_WAY | {"empty"},
    ".producer-ids": IN_ITS_WAY,
}
"""Files that the first request for a topic's records needs, and the damages that it notices."""


@pytest.mark.parametrize("name, damage", [(name, damage) for name in TOPIC for damage in sorted(TOPIC[name])])
def test_files_of_topics(folder: Path, name: str, damage: str) -> None:
    """A request that needs such a file is refused at once; groups and the other partitions serve."""
    path = folder / name
    if not path.exists():
        path.write_bytes(b"0\n1\norders 0 0\n")
    DAMAGES[damage](path)

    async def use() -> tuple[list[int], list[str]]:
        log = io.StringIO()
        server = Server(config_of(*_settings(folder)), log=log)
        await server.start()
        serving = Serving(server, ManualClock(), log)
        await serving.loaded()
        peer = await serving.peer()
        answers = [(await produce(peer, ("orders", number, ONE)))[0].error_code for number in (0, 1)]
        answers.append(await init(peer, None))
        told = [line["message"] for line in serving.events("topic_partition_unavailable")]
        serving.close_peers()
        await server.stop()
        return answers, told

    with _as_somebody(folder):
        answers, told = asyncio.run(use())
    refused = 0 if name.startswith("orders") else 2
    assert [number for number, answer in enumerate(answers) if answer != ErrorCode.NONE] == [refused]
    assert len(told) == (refused == 0)
    assert all(str(path) in line and any(text in line for text in (advice(path), RIGHTS)) for line in told)


IDS = partition_folder(
    Path(), partition_for(ID, Config().transaction_state_log_num_partitions), TRANSACTIONS_TOPIC
).name
OF_IDS = {
    f"{IDS}/{0:020}.log": IN_ITS_WAY,
    f".lock-{IDS}": IN_ITS_WAY,
    IDS: {"a link to nothing", "a fifo", "without rights"},
}
"""Files of a transactional id, and the damages that its coordinator notices."""


@pytest.mark.parametrize("name, damage", [(name, damage) for name in OF_IDS for damage in sorted(OF_IDS[name])])
def test_files_of_transactional_ids(folder: Path, name: str, damage: str) -> None:
    """The ids of such a partition have no coordinator; groups and all other ids have theirs."""
    DAMAGES[damage](folder / name)

    async def use() -> tuple[list[int], list[str]]:
        log = io.StringIO()
        server = Server(config_of(*_settings(folder)), log=log)
        await server.start()
        serving = Serving(server, ManualClock(), log)
        told = {"partition_refused", "partition_damaged"}
        await serving.until(lambda: bool(told & {line["event"] for line in serving.events()}))
        await serving.until(lambda: not serving._is_at_work())
        peer = await serving.peer()
        answers = [await init(peer, ID), await init(peer, "another")]
        messages = [line["message"] for line in serving.events() if line["event"] in told]
        groups = sorted(line["group"] for line in serving.events("group_loaded"))
        serving.close_peers()
        await server.stop()
        assert "".join(groups) == GROUPS
        return answers, messages

    with _as_somebody(folder):
        (refused, other), (message,) = asyncio.run(use())
    assert (refused, other) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NONE)
    assert str(folder / name) in message
    assert any(text in message for text in (advice(folder / name), RIGHTS, PAGE))


@pytest.mark.parametrize("damage", ["cut", "sparse"])
def test_a_segment_of_transactional_ids_that_is_no_whole_batch(folder: Path, damage: str) -> None:
    """The start cuts off what is left of it, says so, and keeps the bytes. No journal has them: the id begins anew."""
    path = folder / IDS / f"{0:020}.log"
    DAMAGES[damage](path)
    left = path.read_bytes()
    started = asyncio.run(_start(folder))
    assert (started.refused, started.groups) == ("", GROUPS)
    (line,) = started.trouble
    assert f"{len(left)} bytes from 0 of {path} to its end are no whole batch" in line
    assert (path.read_bytes(), (folder / IDS / "last.cut").read_bytes()) == (b"", left)


@pytest.mark.parametrize("damage", ["empty", "a link to nothing", "a fifo", "without rights"])
def test_the_folder_itself(damage: str) -> None:
    """Something else in the place of the data folder is refused by its name; so is a folder without rights."""
    with tempfile.TemporaryDirectory() as above:
        os.chmod(above, 0o755)  # noqa: PTH101 - nothing is in it but this
        path = Path(above, "data")
        if damage == "without rights":
            path.mkdir()
        DAMAGES[damage](path)
        with _as_somebody(path):
            started = asyncio.run(_start(path))
        assert started.refused.startswith("log.dirs: ")
        assert str(path) in started.refused


def test_files_of_another_node(folder: Path) -> None:
    """The folder of another node is refused by both ids. A journal that doesn't fit the segments changes none."""
    path = folder / "meta.properties"
    path.write_text(path.read_text().replace("node.id=1", "node.id=9"))
    started = asyncio.run(_start(folder))
    assert started.refused == f"node.id: 1, but the data folder {folder} was made with 9"
    path.write_text(path.read_text().replace("node.id=9", "node.id=1"))
    (folder / JOURNAL).unlink()
    others = folder.with_name("others")
    asyncio.run(_killed(others, others.with_name("image")))
    shutil.copy(others.with_name("image") / JOURNAL, folder / ".journal-9.0")
    started = asyncio.run(_start(folder))
    assert (started.refused, started.groups) == ("", "")
    assert all(PAGE in line for line in started.trouble)
    for left in folder.glob(".journal-left-*"):
        left.unlink()
    assert asyncio.run(_start(folder)).groups == GROUPS


@pytest.mark.parametrize("is_left", [False, True])
@pytest.mark.parametrize("gone", ["__consumer_offsets-0", SEGMENT, "all"])
def test_a_journal_without_its_segments(folder: Path, image: Image, gone: str, *, is_left: bool) -> None:
    """A start refuses the partition and names the file that has its last batches; verify says clean at no time."""
    shutil.rmtree(folder / "__consumer_offsets-0")
    if gone == SEGMENT:
        (folder / "__consumer_offsets-0").mkdir()
    if is_left:
        for node in folder.glob(".journal-1.*"):
            node.unlink()
        leave(Disk(), folder, 0, [Extent(0, 0, 0, [(image.folder / SEGMENT).read_bytes()])])
    if gone == "all":
        for other in folder.glob("__consumer_offsets-*"):
            shutil.rmtree(other)
    assert not _is_clean(folder)
    (line, *others) = asyncio.run(_start(folder)).trouble
    assert str(folder / LEFT) in line
    assert str(folder / SEGMENT) in line
    assert bool(others) == (gone == "all" and not is_left)
    assert not _is_clean(folder)


def test_a_segment_that_lacks_what_was_durable(folder: Path) -> None:
    """A segment that ends with a whole batch, but before the journal's, is found by verify as by a start."""
    segment = folder / SEGMENT
    content = segment.read_bytes()
    first = peek_header(content, 0).size
    for node in folder.glob(".journal-1.*"):
        node.unlink()
    leave(Disk(), folder, 0, [Extent(0, 0, len(content), [content[:first]])])
    os.truncate(segment, first)
    assert not _is_clean(folder)
    (line,) = asyncio.run(_start(folder)).trouble
    assert f"ends here, {len(content)} bytes were durable: {folder / LEFT} has the batches behind them" in line
