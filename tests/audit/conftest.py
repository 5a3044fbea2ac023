"""Logs that real clients made, on Tenure and (marked `oracle`) on Apache Kafka 3.9 and 4.4.

Where Spark isn't installed (`make test` installs everything else), its modules are skipped and say so.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from coordinator.log.compaction.rewrite import compact
from coordinator.log.compaction.task import Task
from coordinator.log.segments.disk import Disk
from coordinator.log.segments.outside import find_logs
from coordinator.log.segments.segment import list_segments, segment_at
from protocol.records.walk import decode_batches
from tests.audit.scenes import Scene, clean
from tests.log.compaction.closed import swap
from tests.support.apache import VERSION, VERSION_44, ApacheKafka
from tests.support.patience import WITHIN_S
from tests.support.tenure import Tenure, wait_until
from tests.support.topics import make_topics

ON_SPARK = ("tests/audit/spark/", "tests/audit/test_following.py")
"""Where tests import pyspark; all of them are marked `spark`."""

TOPIC = "orders"
MOVING_TOPICS = ("left", "right")
PARTITION_COUNT = 4
ID_COUNT = 5
SETTINGS = {
    "group.initial.rebalance.delay.ms": "1500",
    "offsets.topic.num.partitions": str(PARTITION_COUNT),
    "transaction.state.log.num.partitions": str(ID_COUNT),
}


class WithoutSpark(pytest.Module):
    """A module that can't be imported without pyspark."""

    def collect(self) -> list[pytest.Item]:
        """Skip the module."""
        pytest.skip("pyspark is not installed: make test-spark installs it")


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """Skip modules on Spark if it isn't installed."""
    name = module_path.relative_to(parent.config.rootpath).as_posix()
    if name.startswith(ON_SPARK) and find_spec("pyspark") is None:
        return WithoutSpark.from_parent(parent, path=module_path)
    return None


@dataclass
class Script:
    """The groups of the script: a roll of static members, a storm of dynamic ones, commits, and a deletion.

    folder: a copy of the log of the stopped server. moving: a cooperative group, in which one of two topics moves to a
    second member. has_newer: whether the server knows the consumer protocol (KIP-848), so that a group could go over to
    it and stay there (upgraded), or come back (converted). exact: its offsets were committed and aborted in
    transactions of a producer of that name. left_open: likewise, and later, in a transaction without an end.
    has_transactions: whether these two are played.
    """

    folder: Path
    seats: Sequence[str] = ("a", "b", "c")
    roll: str = "roll"
    storm: str = "storm"
    storm_rounds: int = 3
    deleted: str = "deleted"
    moving: str = "moving"
    upgraded: str = "upgraded"
    converted: str = "converted"
    exact: str = "exact"
    left_open: str = "left-open"
    has_newer: bool = False
    has_transactions: bool = True


@pytest.fixture
def scene() -> Scene:
    """Return the log of a correct group."""
    return clean()


def consumer(
    bootstrap: str, group_id: str, seat: str | None = None, topics: Sequence[str] = (TOPIC,), **settings: str
) -> Consumer:
    """Return a consumer of these topics; settings: further ones, with _ for each dot."""
    given: dict[str, str | int] = {name.replace("_", "."): value for name, value in settings.items()}
    if seat is not None:
        given["group.instance.id"] = seat
    if given.get("group.protocol") != "consumer":
        given |= {"session.timeout.ms": 300_000, "heartbeat.interval.ms": 200}
    made = Consumer({"bootstrap.servers": bootstrap, "group.id": group_id, "enable.auto.commit": False, **given})
    made.subscribe(list(topics))
    return made


def share(consumers: Sequence[Consumer], count: int = PARTITION_COUNT) -> None:
    """Wait until each consumer has a partition and each partition has an owner."""

    def shared() -> bool:
        for each in consumers:
            each.poll(0.02)
        owned = [each.assignment() for each in consumers]
        return all(owned) and sum(map(len, owned)) == count

    wait_until(shared, "the topic is shared", WITHIN_S)


def play(bootstrap: str, script: Script) -> None:
    """Play the whole script with real clients, all groups at the same time: each waits most of its time."""
    make_topics(bootstrap, {TOPIC: PARTITION_COUNT, **dict.fromkeys(MOVING_TOPICS, 1)})
    parts = [
        partial(roll, bootstrap, script),
        partial(storm, bootstrap, script),
        partial(move, bootstrap, script.moving),
        partial(delete, bootstrap, script.deleted),
    ]
    if script.has_transactions:
        parts.append(partial(transact, bootstrap, script))
    if script.has_newer:
        parts.append(partial(change_protocol, bootstrap, script.upgraded, "classic", "consumer"))
        parts.append(partial(change_protocol, bootstrap, script.converted, "classic", "consumer", "classic"))
    with ThreadPoolExecutor(len(parts)) as threads:
        for part in [threads.submit(part) for part in parts]:
            part.result()


def roll(bootstrap: str, script: Script) -> None:
    """Restart static members one by one; each commits."""
    seats = {seat: consumer(bootstrap, script.roll, seat) for seat in script.seats}
    try:
        share(list(seats.values()))
        for number, seat in enumerate(script.seats):
            seats[seat].close()
            seats[seat] = consumer(bootstrap, script.roll, seat)
            share(list(seats.values()))
            commit(seats[seat], 10 + number)
    finally:
        for each in seats.values():
            each.close()


def storm(bootstrap: str, script: Script) -> None:
    """Dynamic members come and go beside one that stays and commits."""
    with ExitStack() as stack:
        stays = consumer(bootstrap, script.storm)
        stack.callback(stays.close)
        share([stays])
        for _ in range(script.storm_rounds):
            comes = consumer(bootstrap, script.storm)
            share([stays, comes])
            comes.close()
            share([stays])
        commit(stays, 7)


def delete(bootstrap: str, group_id: str) -> None:
    """Delete a group in which a member committed."""
    gone = consumer(bootstrap, group_id)
    share([gone])
    commit(gone, 3)
    gone.close()
    admin = AdminClient({"bootstrap.servers": bootstrap})  # must live until the server has answered
    admin.delete_consumer_groups([group_id])[group_id].result(WITHIN_S)


def transact(bootstrap: str, script: Script) -> None:
    """Commit, abort and leave open offsets in transactions of groups without members."""
    producers = []
    for group_id, *ends in ((script.exact, True, False, True), (script.left_open, None)):
        with closing(Consumer({"bootstrap.servers": bootstrap, "group.id": group_id})) as reads:
            producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": group_id})
            producers.append(producer)  # a producer that goes aborts
            producer.init_transactions(WITHIN_S)
            for number, is_committed in enumerate(ends):
                producer.begin_transaction()
                offsets = [TopicPartition(TOPIC, 0, 50 + number)]
                producer.send_offsets_to_transaction(offsets, reads.consumer_group_metadata(), WITHIN_S)
                if is_committed is not None:
                    (producer.commit_transaction if is_committed else producer.abort_transaction)(WITHIN_S)


def move(bootstrap: str, group_id: str) -> None:
    """Move one of two topics to another member; during one generation no member owns it (KIP-429)."""
    with ExitStack() as stack:
        members = []
        for _ in MOVING_TOPICS:
            joins = consumer(
                bootstrap, group_id, topics=MOVING_TOPICS, partition_assignment_strategy="cooperative-sticky"
            )
            stack.callback(joins.close)
            members.append(joins)
            share(members, len(MOVING_TOPICS))


def change_protocol(bootstrap: str, group_id: str, *protocols: str) -> None:
    """Join with one member for each group protocol in turn; each commits the number of members so far."""
    for number, protocol in enumerate(protocols, 1):
        joins = consumer(bootstrap, group_id, group_protocol=protocol)
        try:
            share([joins])
            commit(joins, number)
        finally:
            joins.close()


def commit(of: Consumer, offset: int) -> None:
    """Commit an offset of the topic's first partition."""
    of.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False)


@pytest.fixture(
    scope="session",
    params=["tenure", *(pytest.param(version, marks=pytest.mark.oracle) for version in (VERSION, VERSION_44))],
)
def script(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Script:
    """Play the script on a server and stop it."""
    played = Script(tmp_path_factory.mktemp("audit") / "log", has_newer=request.param == VERSION_44)
    is_ours = request.param == "tenure"
    server: Tenure | ApacheKafka = Tenure(SETTINGS) if is_ours else ApacheKafka(SETTINGS, version=request.param)
    with server:
        play(server.bootstrap, played)
        server.stop()
        shutil.copytree(server.data_dir if isinstance(server, Tenure) else server.log_dir, played.folder)
    return played


@pytest.fixture(scope="session")
def compacted(script: Script, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a compacted copy of the log: the last record of each key, without tombstones."""
    copy = tmp_path_factory.mktemp("compacted")
    for log in find_logs(script.folder):
        folder = copy / log.folder.name
        folder.mkdir()
        end = 0
        for segment in list_segments(Disk(), log.folder):
            shutil.copy(segment.path, folder)
            for batch in decode_batches(segment.path.read_bytes()):
                end = batch.header.next_offset
        # Compaction takes only closed segments, so an empty newest segment closes the one with the records.
        segment_at(folder, end).path.touch()
        task = Task(end, 0, time.time_ns() // 1_000_000 + 1, lag_ms=0, retention_ms=0, segment_size=10**9)
        compact(Disk(), folder, task, partial(swap, folder))
    return copy
