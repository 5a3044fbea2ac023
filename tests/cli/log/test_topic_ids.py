"""Topics move with the groups: import takes the broker's ids, export puts them in place of Tenure's."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from coordinator.cli.log.command import app
from coordinator.cli.log.topic_ids import broker_topics
from coordinator.cli.log.transfer import CannotMove, export_log, import_log
from coordinator.cli.log.verify import Summary, verify
from coordinator.group.consumer.group import ConsumerGroup
from coordinator.group.replay import Replay
from coordinator.group.topics import TopicImage, TopicTable, metadata_hash
from coordinator.log.segments.outside import NoBatch, find_logs, opened, read_segment
from coordinator.log.topics.list import TOPICS_NAME, Topic, TopicsFile, kafka_id
from protocol.records.batch import CRC_START, encode_batch
from protocol.records.codecs import Codec
from protocol.records.walk import decode_records
from tests.audit.scenes import compressed, group_on
from tests.cli.conftest import run_app
from tests.cli.log.conftest import PARTITION_COUNT, consumer_group_of, group_of, write_segment
from tests.group.consumer.play import topic_id

COUNT = f"offsets.topic.num.partitions={PARTITION_COUNT}"
GROUP = group_on(1)
OURS = Topic("t", topic_id("t"), 4)
THEIRS = UUID("0b0c0d0e-1111-4222-8333-444444444444")


def make_broker(folder: Path, topics: dict[str, tuple[UUID, int]]) -> Path:
    """The log folder of a stopped broker with these topics, which never wrote to `__consumer_offsets`."""
    named = {"__consumer_offsets": (UUID(int=7), PARTITION_COUNT), "__transaction_state": (UUID(int=8), 1), **topics}
    for name, (each, count) in named.items():
        for partition in range(count):
            inside = folder / f"{name}-{partition}"
            inside.mkdir(parents=True)
            (inside / "partition.metadata").write_text(f"version: 0\ntopic_id: {kafka_id(each)}")
    for partition in range(PARTITION_COUNT):
        (folder / f"__consumer_offsets-{partition}" / f"{0:020}.log").touch()
    return folder


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A data folder with topic t and a group of the consumer protocol, beside a classic one."""
    folder = tmp_path / "data"
    records = [group_of(group_on(1, "classic")), *consumer_group_of(GROUP)]
    half = len(records) // 2
    batches = [encode_batch(records[:half], 0, 1), compressed(encode_batch(records[half:], half, 1), Codec.LZ4)]
    write_segment(folder, 1, batches)
    for partition in range(PARTITION_COUNT):
        (folder / f".lock-{partition}").touch()
    TopicsFile(folder).save([OURS])
    return folder


def read(folder: Path) -> ConsumerGroup:
    """The group, as a coordinator loads it."""
    replay = Replay()
    for log in find_logs(folder):
        with opened(log) as segments:
            for frame in (frame for segment in segments for frame in read_segment(segment)):
                assert not isinstance(frame, NoBatch)
                replay.add(decode_records(frame.data, frame.at, frame.header).records)
    (group,) = (group for group in replay.groups() if isinstance(group, ConsumerGroup))
    return group


def covered(folder: Path) -> list[bytes]:
    """The bytes of each batch that its CRC covers."""
    found = []
    for log in find_logs(folder):
        with opened(log) as segments:
            for frame in (frame for segment in segments for frame in read_segment(segment)):
                assert not isinstance(frame, NoBatch)
                found.append(frame.data[frame.at + CRC_START : frame.at + frame.header.size])
    return found


def test_export_writes_the_brokers_ids(data_dir: Path, tmp_path: Path) -> None:
    """Targets, assignments and the hash have the broker's ids in compressed batches too; nothing else changes."""
    broker = make_broker(tmp_path / "broker", {"t": (THEIRS, 4)})
    before = read(data_dir)
    moved = export_log(data_dir, broker)
    assert moved.summary.notes == []
    after = read(broker)
    assert after.metadata_hash == metadata_hash(TopicTable([TopicImage(THEIRS, "t", 4)]), ["t"])
    assert {member_id: set(target) for member_id, target in after.targets.items()} == {"m": {THEIRS}, "n": {THEIRS}}
    for member_id, member in before.members.items():
        renamed = {THEIRS if each == OURS.topic_id else each: held for each, held in member.assigned.items()}
        assert after.members[member_id] == member._replace(assigned=renamed)
    assert (after.generation, after.target_epoch, after.regexes) == (
        before.generation,
        before.target_epoch,
        before.regexes,
    )
    assert list(verify(find_logs(broker), PARTITION_COUNT, Summary())) == []


def test_export_changes_no_byte_if_the_ids_are_the_same(data_dir: Path, tmp_path: Path) -> None:
    """A log whose topics came from the broker is copied as it is."""
    broker = make_broker(tmp_path / "broker", {"t": (OURS.topic_id, 4)})
    export_log(data_dir, broker)
    assert covered(broker) == covered(data_dir)


@pytest.mark.parametrize(
    ("topics", "words"),
    [
        ({}, "topic t isn't in "),
        ({"t": (THEIRS, 5)}, "topic t has 4 partitions, 5 in "),
        ({"t": (OURS.topic_id, 5)}, "topic t has 4 partitions, 5 in "),
    ],
)
def test_export_says_which_topics_differ(
    data_dir: Path, tmp_path: Path, topics: dict[str, tuple[UUID, int]], words: str
) -> None:
    """A topic that the broker lacks, or has with other partitions, is a note: the broker makes a new target."""
    broker = make_broker(tmp_path / "broker", topics)
    ran = run_app(app, "export", str(broker), "--data-dir", str(data_dir))
    assert ran.code == 0
    assert f"note: {words}{broker}: the broker makes a new target for the groups that use it" in ran.out
    known = [TopicImage(each, name, count) for name, (each, count) in topics.items()]
    assert read(broker).metadata_hash != metadata_hash(TopicTable(known), ["t"])


def test_hash_of_topics_that_changed_stays_wrong(data_dir: Path, tmp_path: Path) -> None:
    """A group that hasn't seen yet that a topic grew keeps its hash, and the broker makes a new target."""
    TopicsFile(data_dir).save([Topic("t", OURS.topic_id, 5)])
    broker = make_broker(tmp_path / "broker", {"t": (THEIRS, 5)})
    before = read(data_dir).metadata_hash
    export_log(data_dir, broker)
    assert read(broker).metadata_hash == before


def test_list_of_topics_that_is_damaged_is_refused(data_dir: Path, tmp_path: Path) -> None:
    """Export doesn't guess ids: nothing is moved."""
    (data_dir / TOPICS_NAME).write_bytes(b"{}")
    broker = make_broker(tmp_path / "broker", {"t": (THEIRS, 4)})
    with pytest.raises(CannotMove, match=TOPICS_NAME):
        export_log(data_dir, broker)
    assert not (broker / f"__consumer_offsets-1/{0:020}.log").read_bytes()


def test_import_takes_topics_over(tmp_path: Path) -> None:
    """Import keeps names, ids and numbers of partitions, from all log folders; the broker's own topics stay behind."""
    broker = make_broker(tmp_path / "broker", {"t": (THEIRS, 4), "a-0": (UUID(int=3), 1)})
    second = tmp_path / "disk"
    second.mkdir()
    for partition in (2, 3):
        (broker / f"t-{partition}").rename(second / f"t-{partition}")
    (second / "__consumer_offsets-3").mkdir()
    (broker / "__consumer_offsets-3").rename(second / "__consumer_offsets-3")
    folders = (str(broker), str(second))
    ran = run_app(app, "import", *folders, "--data-dir", str(tmp_path / "new"), "--set", COUNT)
    assert ran.code == 0
    assert ran.out.endswith(" 0 groups, 2 topics without records\n")
    assert TopicsFile(tmp_path / "new").load() == {"t": Topic("t", THEIRS, 4), "a-0": Topic("a-0", UUID(int=3), 1)}


def test_folders_without_one_id_are_left_out(tmp_path: Path) -> None:
    """A topic whose folders name two ids, or none that can be read, is left out with a note."""
    broker = make_broker(tmp_path / "broker", {"t": (THEIRS, 2), "u": (THEIRS, 1), "v": (THEIRS, 1)})
    (broker / "t-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {kafka_id(UUID(int=9))}")
    (broker / "u-0" / "partition.metadata").write_text("version: 0\n")
    (broker / "orders-0").mkdir()
    topics, notes = broker_topics([broker])
    assert topics.keys() == {"v"}
    assert notes == [
        f"{broker / 'u-0' / 'partition.metadata'} has no topic id that can be read",
        "topic t is left out: its folders have 2 ids",
    ]


def test_imported_topics_are_exported_as_they_were(data_dir: Path, tmp_path: Path) -> None:
    """There and back: the groups' ids are the broker's again."""
    broker = make_broker(tmp_path / "broker", {"t": (THEIRS, 4)})
    export_log(data_dir, broker)
    import_log([broker], tmp_path / "back", PARTITION_COUNT)
    assert TopicsFile(tmp_path / "back").load() == {"t": Topic("t", THEIRS, 4)}
    other = make_broker(tmp_path / "other", {"t": (THEIRS, 4)})
    export_log(tmp_path / "back", other)
    assert read(other).members == read(broker).members


def test_topic_with_too_many_partitions_is_left_out(tmp_path: Path) -> None:
    """The number in a folder's name is a claim: a topic above the limit isn't taken over, nor a number that is none."""
    for name in ("orders-9999", "orders-10000", "events-9999", f"others-{10**23}"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "partition.metadata").write_text("version: 0\ntopic_id: f2gUNdzhRjKtEkBgASf_-g\n")
    topics, notes = broker_topics([tmp_path])
    assert {name: topic.partition_count for name, topic in topics.items()} == {"events": 10_000}
    assert notes == ["topic orders is left out: its folders show 10001 partitions, and a topic has at most 10000"]
