"""etcd comes back from a snapshot under a cluster: members keep their seats, and an earlier node writes nothing.

House rule: as docs/run/cluster-operations.md tells an operator to do it, but for one node that nobody has stopped.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator.cli.store import app
from coordinator.log.cluster.keys import parse_head
from coordinator.log.etcd.moving import EPOCHS
from tests.cli.conftest import run_app
from tests.cluster.stage import REAL_SESSION_TIMEOUT_MS, Stage
from tests.support.cluster_history import backward_reads, by_group, late_yeses, stale_reads, unwritten_reads

pytestmark = [pytest.mark.etcd, pytest.mark.cluster]


def test_etcd_is_restored_from_a_snapshot(tmp_path: Path) -> None:
    """One node is frozen all the time. The epochs are raised, no group rebalances, and commits go on.

    Commits after the snapshot are lost. So reads may be older than these, but not older than the snapshot. The probe's
    members have clients' own session timeout: on a slow machine the steps of an operator take more than 10 s.
    """
    with Stage(session_timeout_ms=REAL_SESSION_TIMEOUT_MS) as stage:
        stage.recover()
        saved = stage.probe.committed()
        stage.etcd.save_snapshot(tmp_path / "snapshot.db")
        stage.recover()
        left, *others = stage.cluster.nodes
        stage.probe.anchor(60)
        left.freeze()
        for node in others:
            node.kill()
        stage.etcd.restore_snapshot(tmp_path / "snapshot.db")
        restored = restore(stage)
        heads = [parse_head(value) for value in stage.etcd.values(f"/{stage.cluster.name}/head/").values()]
        assert min(head.epoch for head in heads) >= EPOCHS
        left.thaw()
        for node in others:
            node.start()
        stage.recover()
        assert stage.probe.rebalances(stage.before) == []
        history = stage.history()
        assert late_yeses(history) == []
        for group, requests in by_group(stage.probe.history).items():
            assert unwritten_reads(requests) == [], "a read may find a commit from before the snapshot"
            since = [each for each in requests if each.sent > restored]
            assert stale_reads(since) == []
            assert backward_reads(since) == []
            reads = [each.value for each in since if each.kind == "fetch" and each.is_yes]
            assert min(reads) >= saved[group]
        assert [problem for group in stage.real for problem in group.problems()] == []


def restore(stage: Stage) -> float:
    """Run `tenure store restore`; returns when that was."""
    ran = run_app(app, "restore", "--store", stage.etcd.store, "--cluster", stage.cluster.name)
    assert (ran.code, ran.err) == (0, "")
    assert "the epochs of 50 partitions are raised by 1,000,000" in ran.out
    return stage.probe.now()
