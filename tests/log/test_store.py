"""Tests that a store opens its parts together: the folder's ids, its lock, the topics, and the owners."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from coordinator.config import Config, ConfigError, load
from coordinator.log.embedded.engine import EmbeddedEngine
from coordinator.log.memory import MemoryEngine, MemoryLog
from coordinator.log.segments.counts import Counts
from coordinator.log.segments.journal import node_files
from coordinator.log.segments.segment import TRANSACTIONS_TOPIC
from coordinator.log.store import (
    Store,
    in_memory,
    node_in_turn,
    open_share,
    open_store,
    recover_journals,
    share_memory,
)
from coordinator.log.topics.list import Topic
from tests.log.calls import append, numbers_of, record
from tests.log.calls import opened as opened_partition
from tests.log.disks import FailingDisk
from tests.support.patience import WITHIN_S


def config_in(folder: Path, *sets: str) -> Config:
    """Return a configuration of four partitions on a folder."""
    return load(sets=["offsets.topic.num.partitions=4", f"log.dirs={folder}", *sets])[0]


def opened(config: Config) -> Store:
    """Return the store, which had no calls yet."""
    store = open_store(config, uuid4, lambda *_, **__: None, Counts())
    store.engine.start(lambda *_: None)
    return store


def saved(store: Store, topics: list[Topic]) -> Any:
    """Save a list of topics; return the outcome."""
    outcomes, there = [], threading.Event()

    def done(error: Any) -> None:
        outcomes.append(error)
        there.set()

    store.save_topics(topics, done)
    assert there.wait(WITHIN_S)
    return outcomes[0]


@pytest.mark.parametrize("is_supervised", [False, True])
def test_journals_of_other_nodes(tmp_path: Path, is_supervised: bool) -> None:
    """A start has what every worker's journal had, whatever the number of workers was: of a server, or a supervisor."""
    config = config_in(tmp_path / "data", "tenure.journal.enable=true")
    opened(config).close()
    for node in (1, 2):
        disk = FailingDisk()
        engine = EmbeddedEngine(tmp_path / "data", 4, node, journal=True, disk=disk)
        engine.start(lambda *_: None)
        own, _ = opened_partition(engine, node)
        assert [append(engine, own, record(number)) for number in range(2)] == [None, None]
        left = {path: path.read_bytes() for path in node_files(disk, tmp_path / "data")[node]}
        segment = next((tmp_path / "data" / f"__consumer_offsets-{node}").glob("*.log"))
        size = segment.stat().st_size
        engine.close()
        os.truncate(segment, size)  # as a power cut leaves it
        for path, content in left.items():
            path.write_bytes(content)
        if node == 1:
            for path in left:
                path.rename(tmp_path / path.name)
    for path in tmp_path.glob(".journal*"):
        path.rename(tmp_path / "data" / path.name)
    if is_supervised:
        notices = recover_journals(config)
        assert [notice.fields["node"] for notice in notices] == [1, 2]
        assert not list((tmp_path / "data").glob(".journal*"))
    store = opened(config)
    assert [numbers_of(opened_partition(store.engine, node)[1]) for node in (1, 2)] == [[0, 1]] * 2
    store.close()


def test_a_store_outlives_the_process(tmp_path: Path) -> None:
    """A store has its cluster id and its topics again after a restart."""
    config = config_in(tmp_path / "data", "tenure.topics=orders:3")
    first = opened(config)
    assert [topic.partition_count for topic in first.topics.values()] == [3]
    added = Topic("more", UUID(int=7), 2)
    assert saved(first, [*first.topics.values(), added]) is None
    first.close()
    second = opened(config)
    assert (second.cluster_id, dict(second.topics)) == (first.cluster_id, {**first.topics, "more": added})
    assert (second.folder, second.owners(3)) == (tmp_path / "data", config.node_id)
    second.close()


def test_a_store_is_one_servers(tmp_path: Path) -> None:
    """A store refuses a second server and names the first; a close or a failed opening frees it for the next."""
    config = config_in(tmp_path)
    store = opened(config)
    with pytest.raises(ConfigError, match=r"log\.dirs: .*in use"):
        opened(config)
    store.close()
    with pytest.raises(ConfigError, match=r"node\.id"):
        opened(config_in(tmp_path, "node.id=9"))
    opened(config).close()


def test_a_list_that_can_not_be_kept_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a store can't keep a list, its caller gets the reason, also if the reason is a mistake of ours."""
    store = opened(config_in(tmp_path))

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("coordinator.log.topics.list.replace_file", broken)
    assert "ZeroDivisionError" in str(saved(store, []))
    store.close()


def test_files_that_are_gone_and_folders_of_no_topic_are_noticed(tmp_path: Path) -> None:
    """A store names the files that are missing in a used folder, and the folders that belong to no topic."""
    config = config_in(tmp_path, "tenure.topics=orders:3")
    opened(config).close()
    stray = tmp_path / "gone-0"
    stray.mkdir()
    (stray / "partition.metadata").write_text("version: 0\ntopic_id: x\n")
    store = opened(config_in(tmp_path, "tenure.topics=orders:2"))
    assert [(notice.name, notice.fields.get("topic")) for notice in store.notices] == [
        ("topic_not_shrunk", "orders"),
        ("topic_folder_stray", None),
    ]
    store.close()
    (tmp_path / "topics.json").unlink()
    store = opened(config)
    assert [notice.name for notice in store.notices] == ["file_lost"]
    store.close()


def test_a_share_is_what_falls_to_a_node(tmp_path: Path) -> None:
    """Each of several workers owns every n-th partition; their supervisor locks the folder."""
    config = config_in(tmp_path)
    store = open_share([1, 2], "cluster", config, uuid4, lambda *_, **__: None, Counts())
    assert [store.owners(partition) for partition in range(4)] == [1, 2, 1, 2]
    assert (store.cluster_id, dict(store.topics)) == ("cluster", {})
    assert isinstance(store.engine, EmbeddedEngine)
    assert [node_in_turn(partition, [5, 6, 7]) for partition in range(4)] == [5, 6, 7, 5]


def test_nodes_in_one_process_share_a_log_in_memory(tmp_path: Path) -> None:
    """Each has an engine of its own over it, and sees at once where a partition is; so it is with transactional ids."""
    log, ids = MemoryLog([1, 2]), MemoryLog([1, 2])
    stores = []
    for node_id in (1, 2):
        config = config_in(Path("unused"), f"node.id={node_id}", "offsets.topic.num.partitions=2")
        stores.append(share_memory(log, ids, "cluster", tmp_path, config, uuid4, lambda *_, **__: None, Counts()))
    assert [(store.cluster_id, dict(store.topics), store.folder) for store in stores] == [("cluster", {}, tmp_path)] * 2
    assert stores[0].engine is not stores[1].engine
    for store in stores:
        store.engine.start(lambda *_: None)
    log.move(0, 2)
    assert [store.owners(0) for store in stores] == [2, 2]
    others = [store.other for store in stores if store.other is not None]
    assert [other.owners(0) for other in others] == [1, 1]
    ids.move(0, 2)
    assert [other.owners(0) for other in others] == [2, 2]
    assert not any(other.exists(TRANSACTIONS_TOPIC) for other in others)
    engine = others[1].engine(TRANSACTIONS_TOPIC, 2)
    engine.start(lambda *_: None)
    append(engine, opened_partition(engine)[0], record(1))
    assert all(other.exists(TRANSACTIONS_TOPIC) for other in others)


def test_a_store_in_memory_keeps_what_is_declared() -> None:
    """A store in memory declares the configured topics, and forgets everything else with its process."""
    config = config_in(Path("unused"), "tenure.topics=orders:3")
    engine = MemoryEngine(4, config.node_id)
    make: Callable[..., Store] = partial(in_memory, engine)
    store = make(config, uuid4, lambda *_, **__: None, Counts())
    assert (store.engine, list(store.topics), store.folder) == (engine, ["orders"], None)
    outcomes: list[object] = []
    store.save_topics([], outcomes.append)
    assert outcomes == [None]
    store.close()
