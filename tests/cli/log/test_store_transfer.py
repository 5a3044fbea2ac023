"""`tenure log import` and `export` with `--store`: every record goes into etcd and comes back, byte for byte."""

from __future__ import annotations

import json
import shutil
from itertools import count
from pathlib import Path
from uuid import UUID

import pytest

from coordinator.cli.log.command import app
from coordinator.cli.log.report import ProgressLines
from coordinator.cli.log.store_transfer import newest
from coordinator.cli.log.transfer import import_log
from coordinator.log.meta import note_partition_count, noted_cluster_id
from coordinator.log.segments.outside import JournalsBeside, find_logs
from coordinator.log.topics.list import ACLS, Topic, TopicsFile
from coordinator.transaction.state import Status
from tests.cli.conftest import Ran, run_app
from tests.cli.log.conftest import PARTITION_COUNT, write_id
from tests.cli.log.test_locks import another_process
from tests.cli.log.test_transfer import broker, content
from tests.support.etcd import Etcd

__all__ = ["broker"]

pytestmark = pytest.mark.etcd

COUNT = f"offsets.topic.num.partitions={PARTITION_COUNT}"
NUMBERS = count()
TOPICS = [Topic("orders", UUID(int=5), 3, {"retention.ms": "1"}), Topic(ACLS.name, ACLS.topic_id, 0, {"a:b": "c"})]


@pytest.fixture
def store(etcd: Etcd) -> list[str]:
    """The options that name a cluster that isn't there yet."""
    return ["--store", etcd.store, "--cluster", f"c{next(NUMBERS)}"]


@pytest.fixture
def ours(data_dir: Path, tmp_path: Path) -> Path:
    """A data folder of a stopped Tenure, with topics."""
    folder = tmp_path / "ours"
    import_log([data_dir], folder, PARTITION_COUNT)
    TopicsFile(folder).save(TOPICS)
    note_partition_count(folder, PARTITION_COUNT, "the-cluster-id")
    return folder


def values(path: Path) -> dict[int | None, dict[bytes, bytes]]:
    """The newest value of each key, by partition."""
    return {
        log.partition: found for log in find_logs(path) if (found := newest(log, JournalsBeside(), ProgressLines(0)))
    }


def dumped(path: Path) -> set[str]:
    """The lines of `tenure log dump` about each value, without places and times."""
    ran = run_app(app, "dump", str(path), "--output", "json")
    assert ran.code == 0
    lines = [json.loads(line) for line in ran.out.splitlines()]
    names = ("log_partition", "kind", "key_version", "key", "value_version", "value")
    return {json.dumps([line.get(name) for name in names]) for line in lines if not line.get("tombstone")}


def test_a_data_folder_goes_into_etcd_and_comes_back(ours: Path, store: list[str], tmp_path: Path) -> None:
    """Records, topics, ACLs and the cluster's id; the log is right, and the source unchanged."""
    before = content(ours)
    into = run_app(app, "import", str(ours), *store)
    assert (into.code, into.err) == (0, "")
    number = sum(map(len, values(ours).values()))
    assert f"is imported into cluster {store[-1]}: {PARTITION_COUNT} partitions, {number} records, " in into.out
    assert content(ours) == before
    back = tmp_path / "back"
    out = run_app(app, "export", str(back), *store)
    assert (out.code, out.err) == (0, "")
    assert out.out.startswith(f"cluster {store[-1]} is exported into {back}: {PARTITION_COUNT} partitions, ")
    assert values(back) == values(ours)
    assert dumped(back) <= dumped(ours)
    assert len(dumped(back)) == number
    assert run_app(app, "verify", str(back)).code == 0
    assert TopicsFile(back).load() == {topic.name: topic for topic in TOPICS}
    assert noted_cluster_id(back) == "the-cluster-id"


def test_a_brokers_folder_goes_into_etcd_and_to_another_broker(
    data_dir: Path, broker: Path, store: list[str], tmp_path: Path
) -> None:
    """The same records are in the other broker's folders; nothing else of either is touched."""
    before = content(data_dir)
    assert run_app(app, "import", str(data_dir), *store, "--set", COUNT).code == 0
    assert content(data_dir) == before
    out = run_app(app, "export", str(broker), *store)
    assert (out.code, out.err) == (0, "")
    assert values(broker) == values(data_dir)
    assert run_app(app, "verify", str(broker)).code == 0
    again = run_app(app, "export", str(broker), *store)
    assert again.code == 2
    assert "groups are never mixed" in again.err


def one_line(ran: Ran) -> str:
    """The line with which a command was refused."""
    assert (ran.code, ran.out) == (2, "")
    (line,) = ran.err.splitlines()
    return line


def test_a_move_that_can_not_be_done_says_why(ours: Path, store: list[str], tmp_path: Path) -> None:
    """A folder in use, a target with something in it, a cluster that is there or isn't: a line each, nothing moved."""
    assert "etcd has no cluster" in one_line(run_app(app, "export", str(tmp_path / "none"), *store))
    assert not (tmp_path / "none").exists()
    with another_process(ours, "flock"):
        assert "is in use by a running server" in one_line(run_app(app, "import", str(ours), *store))
    assert run_app(app, "import", str(ours), *store).code == 0
    assert "makes a new cluster" in one_line(run_app(app, "import", str(ours), *store))
    assert "is a data folder already" in one_line(run_app(app, "export", str(ours), *store))
    assert "--store" in one_line(run_app(app, "export", str(ours), "--store", "nowhere", "--cluster", "c"))
    assert "tenure.cluster" in one_line(run_app(app, "export", str(ours), *store[:2]))
    both = run_app(app, "import", str(ours), *store, "--data-dir", str(tmp_path / "new"))
    assert both.code == 2
    assert "either --data-dir, or --store" in both.err


def test_transactional_ids_stay_behind(data_dir: Path, store: list[str]) -> None:
    """A cluster has no transactions; a log with a commit that isn't written everywhere isn't moved."""
    path = write_id(data_dir, "payer", Status.PREPARE_COMMIT)
    assert "transactional id 'payer' has a transaction whose end isn't written everywhere" in one_line(
        run_app(app, "import", str(data_dir), *store, "--set", COUNT)
    )
    shutil.rmtree(data_dir / path.parent.name)
    for each in data_dir.glob("__transaction_state-*"):
        each.rmdir()
    write_id(data_dir, "payer", Status.ONGOING)
    ran = run_app(app, "import", str(data_dir), *store, "--set", COUNT)
    assert (ran.code, ran.err) == (0, "")
    assert "note: 1 transactional id left behind" in ran.out
