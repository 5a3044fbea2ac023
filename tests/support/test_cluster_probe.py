"""The probe of clusters, on a single server: what it notes about a kill is what the server did."""

from __future__ import annotations

import pytest

from tests.interop.brokers import create_topic
from tests.support.cluster_history import gaps, wrongs
from tests.support.cluster_probe import TOPIC, Probe
from tests.support.patience import WITHIN_S
from tests.support.tenure import Tenure

pytestmark = pytest.mark.interop
MEMBERS = 3


def test_the_probe_sees_a_kill_as_a_gap_and_no_rebalance() -> None:
    """The server is killed and started: each group has a gap, nothing is wrong or lost, and no seat has moved."""
    with Tenure({"group.initial.rebalance.delay.ms": 500}) as tenure:
        create_topic(tenure.bootstrap, TOPIC, 2)
        with Probe([tenure.bootstrap], groups=3, members=MEMBERS) as probe:
            probe.wait_for_commits(began := probe.now())
            before = probe.state()
            probe.anchor(WITHIN_S)
            probe.wait_for_commits(probe.now())
            tenure.restart()
            ended = probe.wait_for_commits(probe.now())
            assert probe.rebalances(before) == []
            assert probe.lost() == []
        assert wrongs(probe.history) == []
        assert set(gaps(probe.history, began, ended)) == set(before)
        assert any(not each.is_yes for each in probe.history)
        for group in before:
            *answered, last = (each for each in probe.history if each.group == group and each.member < 0)
            assert last.got is None, "an anchor notes that its node is gone"
            assert any(each.is_yes for each in answered)
            assert all(each.got is not None and each.got <= last.sent for each in answered)


def test_the_probe_sees_that_a_group_rebalances() -> None:
    """The server forgets its data: each group has another generation's seats, and its commits are lost."""
    with Tenure({"group.initial.rebalance.delay.ms": 0}) as tenure:
        create_topic(tenure.bootstrap, TOPIC, 2)
        with Probe([tenure.bootstrap], groups=2) as probe:
            probe.wait_for_commits(probe.now())
            before = probe.state()
            tenure.kill()
            tenure.data_dir.rename(tenure.directory / "before")
            tenure.start()
            create_topic(tenure.bootstrap, TOPIC, 2)
            probe.wait_for_commits(probe.now())
            assert probe.rebalances(before) == sorted(before)
