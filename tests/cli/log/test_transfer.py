"""`tenure log import` and `export`: they move a whole log or nothing, and only a log without findings."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event
from uuid import uuid4

import pytest

from coordinator.cli.log import report, transfer
from coordinator.cli.log.command import app
from coordinator.cli.log.transfer import GUARD, CannotMove, NotClean, export_log, import_log
from coordinator.cli.log.verify import guess_partition_count
from coordinator.config import INT32_MAX, ConfigError, load
from coordinator.group.records import group_key
from coordinator.log.embedded.engine import EmbeddedEngine
from coordinator.log.engine import EngineError, Ownership
from coordinator.log.meta import claim_folder
from coordinator.log.segments.disk import Disk
from coordinator.log.segments.lock import noted_number
from coordinator.log.segments.outside import NoBatch, find_logs, opened, read_segment
from coordinator.transaction.records import key_of
from coordinator.transaction.state import Status
from protocol.messages import GroupMetadataValue, encode
from protocol.records.batch import CRC_START, Record, encode_batch
from protocol.records.walk import decode_batches
from tests.audit.scenes import group_on
from tests.cli.conftest import Ran, run_app
from tests.cli.log.conftest import PARTITION_COUNT, marker, offset_of, tombstone_of, write_id, write_segment
from tests.cli.log.test_locks import another_process
from tests.support.patience import WITHIN_S

COUNT = f"offsets.topic.num.partitions={PARTITION_COUNT}"


@pytest.fixture
def broker(tmp_path: Path) -> Path:
    """The log folder of a stopped broker that never wrote to `__consumer_offsets`."""
    folder = tmp_path / "broker"
    for partition in range(PARTITION_COUNT):
        inside = folder / f"__consumer_offsets-{partition}"
        inside.mkdir(parents=True)
        (inside / "partition.metadata").write_text("version: 0\ntopic_id: f2gUNdzhRjKtEkBgASf_-g")
        (inside / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
        for suffix in ("log", "index", "timeindex"):
            (inside / f"{0:020}.{suffix}").touch()
    (folder / "orders-0").mkdir()
    (folder / "meta.properties").write_text("version=1\n")
    return folder


def content(folder: Path) -> dict[str, bytes | None]:
    """Every file below a folder with its bytes; None for a folder."""
    return {str(path.relative_to(folder)): None if path.is_dir() else path.read_bytes() for path in folder.rglob("*")}


def batches(path: Path) -> list[tuple[int, int, int, bytes]]:
    """Of each batch: partition, offset, epoch and the bytes that the CRC covers."""
    found = []
    for log in find_logs(path):
        with opened(log) as segments:
            frames = [frame for segment in segments for frame in read_segment(segment)]
        for frame in frames:
            assert not isinstance(frame, NoBatch)
            header = frame.header
            covered = frame.data[frame.at + CRC_START : frame.at + header.size]
            assert log.partition is not None
            found.append((log.partition, header.base_offset, header.partition_leader_epoch, covered))
    return found


class FailingDisk(Disk):
    """A disk whose n-th changing call fails; `calls` counts them."""

    def __init__(self, fail_at: int) -> None:
        self.calls = 0
        self._fail_at = fail_at

    def _count(self) -> None:
        self.calls += 1
        if self.calls == self._fail_at:
            raise OSError(5, "Input/output error")

    def write(self, descriptor: int, parts: Sequence[bytes | memoryview], position: int) -> int:
        self._count()
        return super().write(descriptor, parts, position)

    def fdatasync(self, descriptor: int) -> None:
        self._count()
        super().fdatasync(descriptor)

    def make_folder(self, folder: Path) -> None:
        self._count()
        super().make_folder(folder)

    def sync_folder(self, folder: Path) -> None:
        self._count()
        super().sync_folder(folder)

    def rename(self, old: Path, new: Path) -> None:
        self._count()
        super().rename(old, new)


def own_epoch(data_dir: Path, partition: int) -> int:
    """The epoch of the next owner of a partition, after it has loaded the log to the end."""
    epochs: list[int] = []
    records: list[Record] = []
    failures: list[EngineError] = []
    ended = Event()
    engine = EmbeddedEngine(data_dir, PARTITION_COUNT, 1)
    engine.start(lambda _partition, _node_id, _epoch: None)

    def loaded(error: EngineError | None) -> None:
        failures.extend([error] if error else [])
        ended.set()

    def acquired(own: Ownership | EngineError) -> None:
        if isinstance(own, EngineError):
            loaded(own)
        else:
            epochs.append(own.epoch)
            engine.load(own, records.extend, loaded)

    engine.acquire(partition, acquired)
    assert ended.wait(WITHIN_S)
    engine.close()
    assert failures == []
    assert records
    return epochs[0]


def test_import_copies_every_batch(data_dir: Path, tmp_path: Path) -> None:
    """Import keeps bytes and offsets; the new folder has only segments, locks and the number of partitions."""
    target = tmp_path / "new" / "data"
    target.parent.mkdir()
    (data_dir / "__consumer_offsets-0" / f"{0:020}.index").touch()
    (data_dir / "orders-0").mkdir()
    moved = import_log([data_dir], target, PARTITION_COUNT)
    assert (moved.partitions, moved.segments, moved.summary.groups) == (4, 8, 4)
    assert batches(target) == batches(data_dir)
    names = {path.name for path in target.iterdir()}
    partitions = {f"__consumer_offsets-{n}" for n in range(4)}
    assert names == partitions | {f".lock-{n}" for n in range(4)} | {"meta.properties"}
    assert [path.name for path in target.parent.iterdir()] == ["data"]
    assert not (data_dir / ".lock").exists()


@pytest.mark.parametrize(("checkpoint", "expected"), [(None, 4), ("0\n2\n0 0\n9 17\n", 10), ("odd\n", 4)])
def test_epochs_go_on_above_the_brokers(data_dir: Path, tmp_path: Path, checkpoint: str | None, expected: int) -> None:
    """The next owner's epoch is above that of each batch, and above those of leaders that wrote nothing."""
    if checkpoint is not None:
        (data_dir / "__consumer_offsets-1" / "leader-epoch-checkpoint").write_text(checkpoint)
    import_log([data_dir], tmp_path / "new", PARTITION_COUNT)
    assert own_epoch(tmp_path / "new", 1) == expected


def test_import_names_what_is_at_a_bound(tmp_path: Path) -> None:
    """A group whose generation is the last one is imported, and a line names it."""
    group = group_on(0)
    value = GroupMetadataValue(protocol_type="consumer", generation=INT32_MAX, current_state_timestamp=1)
    record = Record(group_key(group), b"\0\3" + encode(value, 3), 1)
    write_segment(tmp_path / "kafka", 0, [encode_batch([record], 0, 0)])
    for partition in range(1, PARTITION_COUNT):
        write_segment(tmp_path / "kafka", partition, [])
    moved = import_log([tmp_path / "kafka"], tmp_path / "data", PARTITION_COUNT)
    assert [f"group {group!r}: its generation is {INT32_MAX}" in note for note in moved.summary.notes] == [True]


def test_import_into_an_empty_folder(data_dir: Path, tmp_path: Path) -> None:
    """The target may be a folder that exists, if it is empty."""
    (tmp_path / "new").mkdir()
    import_log([data_dir], tmp_path / "new", PARTITION_COUNT)
    assert batches(tmp_path / "new") == batches(data_dir)


def test_import_that_fails_leaves_nothing(data_dir: Path, tmp_path: Path) -> None:
    """Whichever call fails: the target is absent or complete, nothing lies beside it, and the next try succeeds."""
    target, fail_at = tmp_path / "new", 0
    expected = batches(data_dir)
    while True:
        fail_at += 1
        disk = FailingDisk(fail_at)
        try:
            import_log([data_dir], target, PARTITION_COUNT, disk)
        except OSError:
            assert sorted(path.name for path in tmp_path.iterdir() if path != target) == ["data"]
            if target.exists():  # the sync after the rename failed
                assert batches(target) == expected
                break
        else:
            raise AssertionError("the last call of all is a sync that fails as well")
    assert fail_at > 30


def test_leftover_of_a_killed_import_is_replaced(data_dir: Path, tmp_path: Path) -> None:
    """Import replaces the files that a killed import left beside the target."""
    leftover = tmp_path / ".new.import" / "__consumer_offsets-0"
    leftover.mkdir(parents=True)
    (leftover / f"{99:020}.log").write_bytes(b"half")
    import_log([data_dir], tmp_path / "new", PARTITION_COUNT)
    assert batches(tmp_path / "new") == batches(data_dir)
    assert not (tmp_path / ".new.import").exists()


def split(data_dir: Path, *partitions: int) -> Path:
    """Move these partitions to a log folder of their own."""
    other = data_dir.with_name("other")
    other.mkdir()
    for partition in partitions:
        name = f"__consumer_offsets-{partition}"
        (data_dir / name).rename(other / name)
    return other


def test_a_data_folder_of_ours_needs_no_import(data_dir: Path, tmp_path: Path) -> None:
    """It is no broker's folder: the refusal says what to do with it."""
    (data_dir / "topics.json").touch()
    with pytest.raises(CannotMove, match="is a data folder of Tenure, which needs no import: copy it whole"):
        import_log([data_dir], tmp_path / "new", PARTITION_COUNT)


def test_partitions_of_several_folders_are_imported_at_once(data_dir: Path, tmp_path: Path) -> None:
    """Several disks or brokers together have all partitions; import refuses one alone and says why."""
    expected = batches(data_dir)
    other = split(data_dir, 1, 3)
    with pytest.raises(CannotMove, match=r"1 missing; name all log\.dirs"):
        import_log([data_dir], tmp_path / "new", PARTITION_COUNT)
    assert import_log([data_dir, other, data_dir], tmp_path / "new", PARTITION_COUNT).partitions == 4
    assert batches(tmp_path / "new") == expected
    with pytest.raises(CannotMove, match="name all log folders of the broker at once"):
        import_log([other], tmp_path / "new", PARTITION_COUNT)


def test_best_replica_of_a_partition_is_imported(data_dir: Path, tmp_path: Path) -> None:
    """The highest epoch counts, then the length; a choice that makes a difference is a note."""
    other, name = tmp_path / "other", "__consumer_offsets-1"
    shutil.copytree(data_dir, other)
    longer = write_segment(other, 1, [encode_batch([offset_of(group_on(1))], 7, 3)], base_offset=7)
    moved = import_log([data_dir, other], tmp_path / "longer", PARTITION_COUNT)
    assert batches(tmp_path / "longer") == batches(other)
    folders = (other / name, data_dir / name)
    assert moved.summary.notes == ["{} is taken, up to offset 8 in epoch 3, and not {}, up to 7 in 3".format(*folders)]
    (data_dir / name / longer.name).write_bytes(encode_batch([tombstone_of(group_on(1))], 7, 4))
    longer.write_bytes(longer.read_bytes() + encode_batch([offset_of(group_on(1))], 8, 3))
    import_log([data_dir, other], tmp_path / "newer", PARTITION_COUNT)
    assert batches(tmp_path / "newer") == batches(data_dir)


def test_number_of_partitions_is_noted(data_dir: Path, tmp_path: Path) -> None:
    """The folder refuses a server with another number of partitions."""
    import_log([data_dir], tmp_path / "new", PARTITION_COUNT)
    assert guess_partition_count(tmp_path / "new", find_logs(tmp_path / "new")) == PARTITION_COUNT
    config, _ = load(sets=["offsets.topic.num.partitions=5"])
    with pytest.raises(ConfigError, match=r"offsets\.topic\.num\.partitions: 5, but the data folder"):
        claim_folder(tmp_path / "new", config, uuid4)


def test_interrupted_compactions(data_dir: Path, broker: Path, tmp_path: Path) -> None:
    """Export treats our interrupted compaction as finished; a broker has to finish its own first."""
    folder = data_dir / "__consumer_offsets-2"
    (folder / f"{0:020}.log").rename(folder / f"{0:020}-{4:020}.swap")
    (folder / f"{2:020}.log").write_bytes(b"replaced, and so nobody's any more")
    export_log(data_dir, broker)
    names = {path.name for path in (broker / folder.name).iterdir()}
    assert names == {"partition.metadata", f"{0:020}.log", f"{4:020}.log"}
    (broker / folder.name / f"{0:020}.log.swap").touch()
    with pytest.raises(CannotMove, match="start it and stop it once"):
        import_log([broker], tmp_path / "new", PARTITION_COUNT)


def test_import_refuses_what_it_must_not_do(data_dir: Path, tmp_path: Path) -> None:
    """Import refuses a target that isn't empty, another or a missing partition, and a log with findings."""
    with pytest.raises(CannotMove, match=r"give --set offsets\.topic\.num\.partitions=4"):
        import_log([data_dir], tmp_path / "new", 50)
    full = tmp_path / "full"
    full.mkdir()
    (full / "topics.json").touch()
    with pytest.raises(CannotMove, match="not empty"):
        import_log([data_dir], full, PARTITION_COUNT)
    last = max((data_dir / "__consumer_offsets-3").iterdir())
    last.write_bytes(last.read_bytes()[:-1])
    with pytest.raises(NotClean, match=r"^1 finding: nothing was moved"):
        import_log([data_dir], tmp_path / "new", PARTITION_COUNT)
    (data_dir / "__consumer_offsets-1").rename(tmp_path / "aside")
    with pytest.raises(CannotMove, match="not all partitions of __consumer_offsets: 1 missing"):
        import_log([data_dir], tmp_path / "new", PARTITION_COUNT)
    assert not (tmp_path / "new").exists()


def test_export_fills_a_brokers_folders(data_dir: Path, broker: Path) -> None:
    """Export copies all batches, with epoch 0, keeps the broker's topic id, and removes the rest of the empty log."""
    moved = export_log(data_dir, broker)
    assert (moved.partitions, moved.segments) == (4, 8)
    assert batches(broker) == [(partition, offset, 0, data) for partition, offset, _, data in batches(data_dir)]
    for partition in range(PARTITION_COUNT):
        names = {path.name for path in (broker / f"__consumer_offsets-{partition}").iterdir()}
        assert names == {"partition.metadata", f"{0:020}.log", f"{4:020}.log"}
    assert {path.name for path in broker.iterdir() if "consumer" not in path.name} == {"orders-0", "meta.properties"}


def test_partitions_without_records_are_exported_empty(data_dir: Path, broker: Path, tmp_path: Path) -> None:
    """A partition that we never wrote to has no folder; the locks show how many partitions there are."""
    (data_dir / "__consumer_offsets-3").rename(tmp_path / "aside")
    (data_dir / ".lock-3").touch()
    export_log(data_dir, broker)
    assert {partition for partition, *_ in batches(broker)} == {0, 1, 2}
    assert [path.name for path in (broker / "__consumer_offsets-3").iterdir()] == ["partition.metadata"]


def test_there_and_back_again(data_dir: Path, broker: Path, tmp_path: Path) -> None:
    """Import takes an exported log back: the same records at the same offsets."""
    export_log(data_dir, broker)
    import_log([broker], tmp_path / "back", PARTITION_COUNT)
    assert [(each[0], each[1], each[3]) for each in batches(tmp_path / "back")] == [
        (each[0], each[1], each[3]) for each in batches(data_dir)
    ]


def test_export_that_fails_keeps_the_broker_from_starting(data_dir: Path, broker: Path, tmp_path: Path) -> None:
    """Whichever call fails: the broker's folder is unchanged, complete, or guarded until another export."""
    before, source, fail_at = content(broker), content(data_dir), 0
    expected = [(partition, offset, 0, data) for partition, offset, _, data in batches(data_dir)]
    while True:
        fail_at += 1
        disk = FailingDisk(fail_at)
        try:
            export_log(data_dir, broker, disk)
        except OSError:
            assert content(broker) == before or (broker / GUARD).exists() or batches(broker) == expected
            assert content(data_dir) == source
            if not (broker / GUARD).exists() and batches(broker) == expected:
                break
        else:
            raise AssertionError("the last call of all is a sync that fails as well")
    assert fail_at > 30


def test_export_that_was_killed_is_done_again(data_dir: Path, broker: Path) -> None:
    """While the guard is there, export makes every file anew, even over half a segment."""
    with pytest.raises(OSError, match="Input/output"):
        export_log(data_dir, broker, FailingDisk(40))
    assert (broker / GUARD).exists()
    (broker / "__consumer_offsets-2" / f"{0:020}.log").write_bytes(b"half")
    export_log(data_dir, broker)
    assert not (broker / GUARD).exists()
    assert len(batches(broker)) == len(batches(data_dir))


def test_export_refuses_what_it_must_not_do(data_dir: Path, broker: Path, tmp_path: Path) -> None:
    """Export refuses a target with groups or other partitions, a folder that is no broker's, and findings."""
    before = content(broker)
    (data_dir / ".lock-49").touch()
    with pytest.raises(CannotMove, match=r"offsets\.topic\.num\.partitions=50"):
        export_log(data_dir, broker)
    (data_dir / ".lock-49").unlink()
    with pytest.raises(CannotMove, match="has to create __consumer_offsets first"):
        export_log(data_dir, tmp_path)
    with pytest.raises(CannotMove, match=r"no partition\.metadata"):
        export_log(data_dir, _copy(data_dir))
    last = max((data_dir / "__consumer_offsets-3").iterdir())
    whole = last.read_bytes()
    last.write_bytes(whole[:-1])
    with pytest.raises(NotClean):
        export_log(data_dir, broker)
    last.write_bytes(whole)
    assert content(broker) == before
    export_log(data_dir, broker)
    with pytest.raises(CannotMove, match="never mixed"):
        export_log(data_dir, broker)
    (broker / "__consumer_offsets-1").rename(tmp_path / "aside")
    with pytest.raises(CannotMove, match="1 missing"):
        export_log(data_dir, broker)


def test_transactional_ids_move_both_ways(data_dir: Path, broker: Path, tmp_path: Path) -> None:
    """Both need as many partitions as the other side has; the epochs of markers fall to 0, and rise again."""
    write_segment(data_dir, 0, [marker(10, 77, commit=True, epoch=7)], base_offset=10)
    path = write_id(data_dir, "payer", Status.ONGOING)
    with pytest.raises(CannotMove, match="has to create __transaction_state first"):
        export_log(data_dir, broker)
    for partition in range(PARTITION_COUNT):
        shutil.copytree(broker / f"__consumer_offsets-{partition}", broker / f"__transaction_state-{partition}")
    assert run_export(data_dir, broker).out.endswith(" 4 groups, 1 transactional id\n")
    (ids,) = decode_batches((broker / path.relative_to(data_dir)).read_bytes())
    assert ids.records[0].key == key_of("payer")
    (ended,) = decode_batches((broker / "__consumer_offsets-0" / f"{10:020}.log").read_bytes())
    assert ended.records[0].value == b"\0\0" + b"\0\0\0\0"
    with pytest.raises(CannotMove, match=r"--set transaction\.state\.log\.num\.partitions=4"):
        import_log([broker], tmp_path / "new", PARTITION_COUNT, id_partition_count=50)
    import_log([data_dir], tmp_path / "new", PARTITION_COUNT, id_partition_count=PARTITION_COUNT)
    assert (tmp_path / "new" / path.relative_to(data_dir)).read_bytes() == path.read_bytes()
    lock = tmp_path / "new" / f".lock-{path.parent.name}"
    assert noted_number(Disk(), lock) == 1


ODD: dict[str, Callable[[Path], object]] = {
    "fifo": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "nowhere": lambda path: path.symlink_to("nowhere"),
    "folder": Path.mkdir,
    "file": Path.touch,
}
"""What may have the name of another kind of file -> how it is made."""


@pytest.mark.parametrize("is_source", [True, False], ids=["source", "target"])
@pytest.mark.parametrize(
    ("of_folder", "odd"),
    [(each, odd) for each in (False, True) for odd in ODD if odd != ("folder" if each else "file")],
)
def test_odd_log_of_ids_stops_an_export(
    data_dir: Path, broker: Path, is_source: bool, of_folder: bool, odd: str
) -> None:
    """What is no segment or folder of the ids, on either side, is one line with its name, and nothing changes."""
    segment = write_id(data_dir, "payer", Status.ONGOING).relative_to(data_dir)
    for partition in range(PARTITION_COUNT):
        shutil.copytree(broker / f"__consumer_offsets-{partition}", broker / f"__transaction_state-{partition}")
    path = (data_dir if is_source else broker) / (segment.parent if of_folder else segment)
    path.rename(path.with_name("aside"))
    before = content(data_dir), content(broker)
    ODD[odd](path)
    ran = run_export(data_dir, broker)
    assert (ran.code, len(ran.err.splitlines())) == (2, 1), ran.err
    assert str(path) in ran.err
    path.rmdir() if odd == "folder" else path.unlink()
    assert (content(data_dir), content(broker)) == before


def test_cut_log_of_ids_stops_an_export(data_dir: Path, broker: Path) -> None:
    """A torn record of an id is a finding, like one of a group; the broker's folder is unchanged."""
    segment = write_id(data_dir, "payer", Status.ONGOING)
    for partition in range(PARTITION_COUNT):
        shutil.copytree(broker / f"__consumer_offsets-{partition}", broker / f"__transaction_state-{partition}")
    os.truncate(segment, segment.stat().st_size - 1)
    before = content(broker)
    ran = run_export(data_dir, broker)
    assert (ran.code, str(segment.parent) in ran.out + ran.err) == (1, True)
    assert content(broker) == before


def _copy(folder: Path) -> Path:
    """The same folder under another name."""
    other = folder.with_name("other")
    for path in folder.rglob("*.log"):
        target = other / path.relative_to(folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    return other


def run_import(source: Path, target: Path) -> Ran:
    """Run the command."""
    return run_app(app, "import", str(source), "--data-dir", str(target), "--set", COUNT)


def run_export(source: Path, target: Path) -> Ran:
    """Run the command."""
    return run_app(app, "export", "--data-dir", str(source), str(target))


@pytest.mark.parametrize("call", ["flock", "lockf"])
def test_folder_in_use_is_refused(data_dir: Path, broker: Path, tmp_path: Path, call: str) -> None:
    """Import and export refuse a folder that a running server or broker uses."""
    with another_process(data_dir, call):
        for ran in (run_import(data_dir, tmp_path / "new"), run_export(data_dir, broker)):
            assert ran.code == 2
            assert f"{data_dir} is in use by a running server" in ran.err
    with another_process(broker, call):
        assert f"{broker} is in use" in run_export(data_dir, broker).err


def test_commands_say_what_they_did(data_dir: Path, broker: Path, tmp_path: Path) -> None:
    """Each command prints one line with figures, and ends with exit code 0."""
    ran = run_export(data_dir, broker)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"{data_dir} is exported into {broker}: 4 partitions, 8 segments, ")
    assert ran.out.endswith(" 4 groups\n")
    ran = run_import(broker, tmp_path / "new")
    assert ran.code == 0
    assert ran.out.startswith(f"{broker} is imported into {tmp_path / 'new'}: 4 partitions, 8 segments, ")


def test_findings_are_printed_and_nothing_is_moved(data_dir: Path, broker: Path, tmp_path: Path) -> None:
    """The findings are printed with file and position, and the exit code is 1."""
    path = data_dir / "__consumer_offsets-1" / f"{0:020}.log"
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    for ran in (run_import(data_dir, tmp_path / "new"), run_export(data_dir, broker)):
        assert ran.code == 1
        assert f"{path} at byte 0: batch: CRC" in ran.out
        assert ran.err == "tenure: 1 finding: nothing was moved\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "offsets.topic.num.partitions=x"], "offsets.topic.num.partitions"),
        (["--config", "absent.properties"], "--config: absent.properties: No such file"),
        ([], "No such folder: absent"),
    ],
)
def test_wrong_use_ends_with_2(tmp_path: Path, arguments: list[str], message: str) -> None:
    """The error names the wrong setting, file or folder."""
    ran = run_app(app, "import", "absent", "--data-dir", str(tmp_path / "new"), *arguments)
    assert ran.code == 2
    assert message in ran.err


def test_number_of_partitions_comes_from_the_servers_settings(data_dir: Path, tmp_path: Path) -> None:
    """Import takes the number of partitions from the file with the server's settings, in Latin-1 as the server."""
    file = tmp_path / "server.properties"
    file.write_text("# f\u00fcr Gruppen\noffsets.topic.num.partitions=4\n", encoding="latin-1")
    ran = run_app(app, "import", str(data_dir), "--data-dir", str(tmp_path / "new"), "--config", str(file))
    assert ran.code == 0


@pytest.mark.parametrize("partition", [5_000_000, 2**31 - 1])
def test_missing_partitions_are_counted(data_dir: Path, tmp_path: Path, partition: int) -> None:
    """A folder of a high partition costs neither time nor memory, and the message names the first that are missing."""
    (data_dir / f"__consumer_offsets-{partition}").mkdir()
    named = ", ".join(map(str, range(4, 14)))
    with pytest.raises(CannotMove, match=rf": {named} and {partition - 14:,} more missing; name all"):
        import_log([data_dir], tmp_path / "new", PARTITION_COUNT)


def test_epoch_that_is_none_is_refused(data_dir: Path, tmp_path: Path) -> None:
    """An epoch in a broker's checkpoint that no int32 holds is refused: no owner could go on above it."""
    checkpoint = data_dir / "__consumer_offsets-1" / "leader-epoch-checkpoint"
    checkpoint.write_text("0\n1\n2147483648 0\n")
    with pytest.raises(CannotMove, match="leader-epoch-checkpoint has epoch 2147483648"):
        import_log([data_dir], tmp_path / "new", PARTITION_COUNT)
    assert not (tmp_path / "new").exists()


def test_findings_of_a_move_are_counted(data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A move that is refused keeps the first findings alone, and says how many there are."""
    monkeypatch.setattr(transfer, "FINDINGS_MAX", 2)
    path = data_dir / "__consumer_offsets-1" / f"{0:020}.log"
    path.write_bytes(path.read_bytes() * 4)
    with pytest.raises(NotClean, match=r"^6 findings: nothing was moved$") as caught:
        import_log([data_dir], tmp_path / "new", PARTITION_COUNT)
    assert len(caught.value.findings) == 2


def test_a_long_move_says_how_far_it_is(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A move prints its progress while it compares replicas, checks and copies."""
    monkeypatch.setattr(report, "PROGRESS_S", 0.0)
    shutil.copytree(data_dir, tmp_path / "replica")
    import_log([data_dir, tmp_path / "replica"], tmp_path / "new", PARTITION_COUNT)
    said = [line.split()[1] for line in capsys.readouterr().err.splitlines()]
    assert list(dict.fromkeys(said)) == ["compared", "checked", "copied"]
