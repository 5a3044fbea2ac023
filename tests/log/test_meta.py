"""Tests meta.properties, which says whose data folder it is."""

from __future__ import annotations

import base64
from pathlib import Path
from uuid import uuid4

import pytest

from coordinator.config import ConfigError, parse_properties
from coordinator.log.engine import Damaged
from coordinator.log.files import META_NAME
from coordinator.log.meta import (
    MARKER,
    claim_folder,
    empty_folder,
    note_partition_count,
    noted_partition_count,
    refuse_foreign,
)
from coordinator.log.segments.segment import TRANSACTIONS_TOPIC, partition_folder
from coordinator.log.topics.list import TOPICS_NAME, TopicsFile
from tests.server.harness import config_of


def test_the_cluster_id_is_made_once_and_stays(tmp_path: Path) -> None:
    """A first start makes the cluster id and a second start finds it; the file has Kafka's names."""
    cluster_id, lost, is_new = claim_folder(tmp_path, config_of(), uuid4)
    assert (lost, is_new) == ([], True)
    content = (tmp_path / META_NAME).read_bytes()
    assert claim_folder(tmp_path, config_of(), uuid4).cluster_id == cluster_id
    assert (tmp_path / META_NAME).read_bytes() == content
    held = parse_properties(content.decode())
    assert held["version"] == "1"
    assert held["node.id"] == "1"
    assert held["cluster.id"] == cluster_id
    assert len(base64.urlsafe_b64decode(held["directory.id"] + "==")) == 16


def test_what_kafka_wrote_is_kept(tmp_path: Path) -> None:
    """A server keeps the ids of a folder that was a broker's, and the other lines of the file."""
    (tmp_path / META_NAME).write_text("#\n#Sat\nversion=1\ncluster.id=abc\nnode.id=1\ndirectory.id=def\nother=x\n")
    assert claim_folder(tmp_path, config_of(), uuid4) == ("abc", [], False)
    held = parse_properties((tmp_path / META_NAME).read_text())
    assert (held["directory.id"], held["other"]) == ("def", "x")


@pytest.mark.parametrize("setting", ["node.id=2", "offsets.topic.num.partitions=5"])
def test_a_folder_of_another_server_is_refused(tmp_path: Path, setting: str) -> None:
    """A server refuses a folder with another node id, or another number of partitions: it would look in wrong ones."""
    claim_folder(tmp_path, config_of(), uuid4)
    with pytest.raises(ConfigError, match=setting.partition("=")[0]):
        claim_folder(tmp_path, config_of(setting), uuid4)


@pytest.mark.parametrize("content", ["", "garbage", "version=1\nnode.id=1\n"])
def test_a_file_that_does_not_say_whose_folder_it_is_is_refused(tmp_path: Path, content: str) -> None:
    """A server refuses a file without a cluster id and names it; it makes no new id and doesn't touch the file."""
    (tmp_path / META_NAME).write_text(content)
    with pytest.raises(Damaged, match=META_NAME):
        claim_folder(tmp_path, config_of(), uuid4)
    assert (tmp_path / META_NAME).read_text() == content


def test_lost_files_are_named(tmp_path: Path) -> None:
    """A server names either file if it is missing in a used folder; a fresh import has no list of topics yet."""
    note_partition_count(tmp_path, 4)
    assert noted_partition_count(tmp_path) == 4
    partition_folder(tmp_path, 3).mkdir()
    assert claim_folder(tmp_path, config_of(), uuid4).lost == []
    assert claim_folder(tmp_path, config_of(), uuid4).lost == [tmp_path / TOPICS_NAME]
    TopicsFile(tmp_path).save([])
    assert claim_folder(tmp_path, config_of(), uuid4).lost == []
    (tmp_path / META_NAME).unlink()
    assert claim_folder(tmp_path, config_of(), uuid4).lost == [tmp_path / META_NAME]


def test_partitions_that_would_not_be_served_are_refused(tmp_path: Path) -> None:
    """A server names a partition's folder above the configured number, even if no file states the number."""
    partition_folder(tmp_path, 4).mkdir()
    with pytest.raises(ConfigError, match="__consumer_offsets-4"):
        claim_folder(tmp_path, config_of("offsets.topic.num.partitions=4"), uuid4)
    claim_folder(tmp_path, config_of("offsets.topic.num.partitions=5"), uuid4)


BROKERS = "version=1\ncluster.id=abc\nnode.id=1\ndirectory.id=def\n"


def test_a_brokers_folder_is_refused(tmp_path: Path) -> None:
    """A server refuses a broker's folder, names the command that takes its groups over, and makes nothing in it."""
    (tmp_path / META_NAME).write_text(BROKERS)
    partition_folder(tmp_path, 0).mkdir()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(
        ConfigError, match=f"^{tmp_path} is a broker's folder: `tenure log import {tmp_path} --data-dir "
    ):
        refuse_foreign(tmp_path)
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / META_NAME).read_text() == BROKERS


@pytest.mark.parametrize("name", ["kafka-clients.jar", "orders-0", "recovery-point-offset-checkpoint", "lock-7"])
def test_a_folder_of_other_things_is_refused(tmp_path: Path, name: str) -> None:
    """A server refuses a folder of other things and names one, though it has a broker's ids or partitions."""
    (tmp_path / name).touch()
    with pytest.raises(ConfigError, match=f"^{tmp_path} is no data folder and not empty, '{name}' is in it$"):
        refuse_foreign(tmp_path)
    partition_folder(tmp_path, 0).mkdir()
    with pytest.raises(ConfigError, match=name):
        refuse_foreign(tmp_path)


def test_another_number_of_partitions_of_ids(tmp_path: Path) -> None:
    """A start with another number is refused as soon as there is a transactional id, whose partition would be wrong."""
    setting = "transaction.state.log.num.partitions={}".format
    claim_folder(tmp_path, config_of(setting(4)), uuid4)
    claim_folder(tmp_path, config_of(setting(5)), uuid4)
    partition_folder(tmp_path, 3, TRANSACTIONS_TOPIC).mkdir()
    with pytest.raises(ConfigError, match=f"^{setting(6).replace('=', ': ')}, but the data folder .* was made with 5$"):
        claim_folder(tmp_path, config_of(setting(6)), uuid4)
    claim_folder(tmp_path, config_of(setting(5)), uuid4)
    (tmp_path / META_NAME).unlink()
    with pytest.raises(ConfigError, match=r"__transaction_state-3$"):
        claim_folder(tmp_path, config_of(setting(3)), uuid4)


def test_folders_that_may_be_claimed(tmp_path: Path) -> None:
    """A server may claim a missing folder, an empty one, a disk's, one with ids to use, and its own in any state."""
    refuse_foreign(tmp_path / "none")
    for name in (".gitkeep", ".lock", "lost+found"):
        (tmp_path / name).touch()
        refuse_foreign(tmp_path)
    (tmp_path / META_NAME).write_text(BROKERS)
    refuse_foreign(tmp_path)
    claim_folder(tmp_path, config_of(), uuid4)
    (tmp_path / "notes.txt").touch()
    partition_folder(tmp_path, 0).mkdir()
    refuse_foreign(tmp_path)
    for mark in (".lock-7", TOPICS_NAME):
        (tmp_path / META_NAME).unlink(missing_ok=True)
        with pytest.raises(ConfigError, match="'notes"):
            refuse_foreign(tmp_path)
        (tmp_path / mark).touch()
        refuse_foreign(tmp_path)
        (tmp_path / mark).unlink()


CONTROL = config_of("tenure.control=127.0.0.1:0")


@pytest.mark.parametrize("name", [META_NAME, TOPICS_NAME, ".lock-0", "orders-0", "__consumer_offsets-0", ".hidden"])
def test_a_control_takes_no_folder_of_another_server(tmp_path: Path, name: str) -> None:
    """A server with control refuses a folder that has anything of another server, and changes nothing in it."""
    (tmp_path / name).write_text("\n")
    with pytest.raises(ConfigError, match=f"^log.dirs: a server without control made {tmp_path};.* has to be empty$"):
        claim_folder(tmp_path, CONTROL, uuid4)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_control_marks_its_folder_until_another_server_takes_it(tmp_path: Path) -> None:
    """A server with control takes an empty folder, and its own again, but not after a server without control."""
    (tmp_path / ".lock").touch()
    (tmp_path / "lost+found").mkdir()
    cluster_id = claim_folder(tmp_path, CONTROL, uuid4).cluster_id
    assert claim_folder(tmp_path, CONTROL, uuid4).cluster_id == cluster_id
    assert claim_folder(tmp_path, config_of(), uuid4).cluster_id == cluster_id
    with pytest.raises(ConfigError, match=r"a server without control made"):
        claim_folder(tmp_path, CONTROL, uuid4)


def test_only_a_marked_folder_is_emptied(tmp_path: Path) -> None:
    """Everything but lock and marker goes; what a link points to stays, and so does a folder without a marker."""
    data, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    for folder in (data, elsewhere, partition_folder(data, 3)):
        folder.mkdir()
    (elsewhere / "kept").touch()
    (partition_folder(data, 3) / "0.log").touch()
    (data / "link").symlink_to(elsewhere)
    (data / ".lock").touch()
    with pytest.raises(ConfigError, match=r"^log.dirs: no server with control made"):
        empty_folder(data)
    assert len(list(data.iterdir())) == 3
    (data / MARKER).touch()
    empty_folder(data)
    assert sorted(path.name for path in data.iterdir()) == [".lock", MARKER]
    assert (elsewhere / "kept").exists()
