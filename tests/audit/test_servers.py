"""Logs that real servers wrote for real clients are clean, and their histories agree with the clients' script."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections import defaultdict
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, KafkaException

from coordinator.audit.audit import AuditResult, Options
from coordinator.audit.check.limits import Limits
from coordinator.audit.show.summary import summary
from coordinator.group.partition import partition_for
from coordinator.log.segments.disk import Disk
from coordinator.log.segments.segment import TRANSACTIONS_TOPIC, list_segments, partition_folder
from protocol.records.walk import decode_batches
from tests.audit.audited import audited
from tests.audit.conftest import ID_COUNT, PARTITION_COUNT, SETTINGS, TOPIC, Script, commit, consumer
from tests.audit.scenes import HOUR_MS, group_on
from tests.support.apache import VERSION, ApacheKafka
from tests.support.ids_log import prepare
from tests.support.patience import WITHIN_S
from tests.support.tenure import wait_until


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the tables."""
    return tmp_path_factory.mktemp("out")


@pytest.fixture(scope="module")
def result(script: Script, out: Path) -> AuditResult:
    """Audit the log."""
    return audited(script.folder, out)


def test_nothing_is_found(result: AuditResult, script: Script) -> None:
    """The audit finds nothing in a roll, a few rebalances, commits, partitions that move and a deletion."""
    assert result.findings == []
    assert result.notes == []
    kinds = {kind for kind in result.records_by_type if not kind.startswith("consumer_group_")}
    assert kinds == {"group_metadata", "offset_commit", "transaction_marker"}
    assert (kinds != set(result.records_by_type)) == script.has_newer
    assert set(result.sizes) <= set(range(PARTITION_COUNT))


def test_nothing_is_found_in_what_compaction_leaves(result: AuditResult, script: Script, compacted: Path) -> None:
    """A compacted log has no finding: no key is lost, and each group has its state and a shorter history."""
    found = audited(compacted, options=Options(Limits(PARTITION_COUNT), before=script.folder))
    assert found.findings == []
    assert sum(found.records_by_type.values()) < sum(result.records_by_type.values())
    before, after = summary(result)["groups"], summary(found)["groups"]
    for group in (script.roll, script.storm, script.moving):
        for name in ("generation", "members", "committed", "type"):
            assert before[group][name] == after[group][name], group


def test_partition_that_moves_was_nobodys(result: AuditResult, script: Script, out: Path) -> None:
    """In one generation no member owns one of the two topics, and the audit finds nothing."""
    rows = pq.read_table(out / "tables" / "assignments.parquet", columns=["group", "generation", "topic"]).to_pylist()
    topics: dict[int, set[str]] = defaultdict(set)
    for row in rows:
        if row["group"] == script.moving:
            topics[row["generation"]].add(row["topic"])
    assert sorted(map(len, topics.values()))[:2] in ([1, 1], [1, 2])


def test_group_that_changed_its_protocol_lives(result: AuditResult, script: Script) -> None:
    """A group that changed its protocol keeps its offsets without a finding, and its members may come back."""
    if not script.has_newer:
        assert {story.group_type for story in result.stories} == {"classic"}
        return
    groups = summary(result)["groups"]
    upgraded, converted = groups[script.upgraded], groups[script.converted]
    assert (upgraded["type"], upgraded["deleted"], upgraded["committed"]) == ("consumer", False, {f"{TOPIC}-0": 2})
    assert (converted["type"], converted["deleted"], converted["committed"]) == ("classic", False, {f"{TOPIC}-0": 3})


def test_roll_is_restarts_without_rebalances(result: AuditResult, script: Script) -> None:
    """Each static member restarted once, in one generation."""
    group = summary(result)["groups"][script.roll]
    assert group["static_restarts" if group["causes_told"] else "returns"] == dict.fromkeys(script.seats, 1)
    assert group["at_least"] == (not group["causes_told"])
    assert (group["rebalances"], group["generation"], group["members"]) == (1, 1, len(script.seats))
    assert group["committed"] == {f"{TOPIC}-0": 10 + len(script.seats) - 1}


def test_storm_is_rebalances(result: AuditResult, script: Script) -> None:
    """Each dynamic member causes two rebalances, the beginning one, and the end one more, which empties the group.

    Only Kafka 4 first writes a group of generation 0 without members, so that the first generation has a cause.
    """
    group = summary(result)["groups"][script.storm]
    count = 2 * script.storm_rounds + 1
    assert (group["rebalances"], group["generation"], group["members"]) == (1 + count, count + 1, 0)
    if group["causes_told"]:  # Tenure records the causes
        assert group["causes_told"] == {
            "member joined": 1 + script.storm_rounds,
            "member left": script.storm_rounds + 1,
        }
    else:
        assert group["causes"] == {
            "joined": int(script.has_newer) + script.storm_rounds,
            "left": script.storm_rounds + 1,
        }
    assert group["committed"] == {f"{TOPIC}-0": 7}


def test_deleted_group_is_in_the_summary(result: AuditResult, script: Script) -> None:
    """A deleted group stays in the summary, without members and offsets."""
    group = summary(result)["groups"][script.deleted]
    assert (group["deleted"], group["members"], group["committed"]) == (True, 0, {})


def test_window_is_the_time_of_the_script(result: AuditResult, script: Script) -> None:
    """The first and the last record are in order and less than ten minutes apart."""
    window = summary(result)["groups"][script.roll]["window"]
    assert 0 < window["last_ms"] - window["first_ms"] < 600_000


def test_committed_transactions_count(result: AuditResult, script: Script) -> None:
    """Only offsets of committed transactions count; an open one within its timeout is no finding."""
    groups = summary(result)["groups"]
    assert groups[script.exact]["committed"] == {f"{TOPIC}-0": 52}
    assert not groups.get(script.left_open, {}).get("committed")


def test_lost_marker_is_found(script: Script, tmp_path: Path) -> None:
    """A commit whose marker is lost is found as soon as the log of ids says that it is over."""
    lose_marker(script, tmp_path / "log")
    (found,) = audited(tmp_path / "log").findings
    assert (found.check, found.group) == ("pending_without_end", script.exact)
    detail = json.loads(found.detail)
    assert detail["transactional_id"] == script.exact
    assert detail["why"] == "the transaction is over, and its marker is missing"


def test_lost_id_is_found(script: Script, tmp_path: Path) -> None:
    """A marker whose transactional id is lost is found."""
    lose_id(script, tmp_path / "log")
    (found,) = audited(tmp_path / "log").findings
    assert found.check == "marker_without_transaction"


def test_prepared_transaction_is_found_once_it_is_late(script: Script, tmp_path: Path) -> None:
    """A transaction whose end was answered may wait for its markers, but not for an hour."""
    prepare_left_open(script, tmp_path / "young")
    prepare_left_open(script, tmp_path / "old", HOUR_MS)
    assert audited(tmp_path / "young").findings == []
    (found,) = audited(tmp_path / "old").findings
    assert (found.check, found.group) == ("pending_without_end", script.left_open)
    assert json.loads(found.detail)["why"] == "the transaction is in PrepareCommit, and its marker is missing"


def lose_marker(script: Script, copy: Path) -> None:
    """Copy a log without the last marker of the exact group, and without what follows it in its partition."""
    shutil.copytree(script.folder, copy)
    path = newest(partition_folder(copy, partition_for(script.exact, PARTITION_COUNT)))
    batches = list(decode_batches(path.read_bytes()))
    last = max(at for at, batch in enumerate(batches) if batch.header.is_control)
    os.truncate(path, sum(batch.header.size for batch in batches[:last]))


def lose_id(script: Script, copy: Path) -> None:
    """Copy a log without the transactional id of the exact group."""
    shutil.copytree(script.folder, copy)
    os.truncate(newest(partition_folder(copy, partition_for(script.exact, ID_COUNT), TRANSACTIONS_TOPIC)), 0)


def prepare_left_open(script: Script, copy: Path, later_ms: int = 0) -> None:
    """Copy a log; its open transaction is to be committed, and has no markers. later_ms: when that was written."""
    shutil.copytree(script.folder, copy)
    prepare(copy, script.left_open, ID_COUNT, raises_epoch=False, later_ms=later_ms)


def newest(folder: Path) -> Path:
    """The newest segment of a partition."""
    return list_segments(Disk(), folder)[-1].path


def is_committed(of: Consumer, offset: int) -> bool:
    """Commit an offset; returns whether the broker accepted it."""
    try:
        commit(of, offset)
    except KafkaException:
        return False
    return True


def is_past(unix_s: float) -> bool:
    """Return whether that time is over by the system's clock."""
    return time.time() > unix_s


@pytest.mark.oracle
@pytest.mark.parametrize("script", [VERSION], indirect=True)
def test_nothing_is_found_in_what_kafkas_cleaner_leaves(script: Script) -> None:
    """After a broker took the log over and cleaned it, the audit finds no lost key and no gap."""
    settings = {**SETTINGS, "log.roll.ms": "1", "log.cleaner.backoff.ms": "50"}
    server = ApacheKafka(settings)
    shutil.copytree(script.folder, server.log_dir, dirs_exist_ok=True)
    with server:
        # The broker cleans only closed segments. An append more than log.roll.ms after the segment's first one closes
        # it; in an empty partition the second append does, if it comes at least two milliseconds later.
        for partition in range(PARTITION_COUNT):
            with contextlib.closing(consumer(server.bootstrap, group_on(partition, "closing"))) as commits:
                for offset in (1, 2):
                    # This commit only makes the broker append. Kafka refused one with ILLEGAL_GENERATION once, on a
                    # busy machine.
                    wait_until(partial(is_committed, commits, offset), "the broker takes a commit", WITHIN_S)
                    wait_until(partial(is_past, time.time() + 0.005), "the next commit is of a later time", WITHIN_S)
        wait_until(lambda: len(cleaned(server.log_dir)) == PARTITION_COUNT, "all partitions are cleaned", WITHIN_S)
        server.stop()
        found = audited(server.log_dir, options=Options(before=script.folder))
    assert found.findings == []
    before = audited(script.folder)
    assert sum(found.records_by_type.values()) < sum(before.records_by_type.values())
    whole, left = summary(before)["groups"], summary(found)["groups"]
    for group in (script.roll, script.storm, script.moving, script.deleted):
        for name in ("generation", "members", "committed", "deleted"):
            assert whole[group][name] == left[group][name], group


def cleaned(log_dir: Path) -> list[str]:
    """Return the partitions whose cleaner checkpoint is behind some of the script's records."""
    checkpoint = log_dir / "cleaner-offset-checkpoint"
    lines = [line.split() for line in checkpoint.read_text().splitlines()] if checkpoint.exists() else []
    return [words[1] for words in lines if words[:1] == ["__consumer_offsets"] and int(words[2]) > 0]
