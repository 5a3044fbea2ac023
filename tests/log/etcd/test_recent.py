"""The calls of the last minute: old ones are forgotten, and memory is bounded."""

from __future__ import annotations

import re
from time import monotonic
from uuid import uuid4

import pytest

from coordinator.log.cluster import NodeAddresses, RecentCalls
from coordinator.log.etcd import client as clients
from coordinator.log.etcd.client import KEPT_S, SECONDS, SLOT_S, SLOW_S, Access, Recent
from coordinator.log.etcd.engine import EtcdEngine, open_engine
from coordinator.story.cluster_diagnosis import SLOW_MIN, cluster_findings
from coordinator.story.described import StoreHealth
from tests.log.calls import begin_append, opened, record
from tests.support.etcd import Etcd
from tests.support.patience import WITHIN_S
from tests.support.tenure import wait_until

PULSES_MAX = 50
"""Far more than are needed."""


def test_calls_count_for_a_minute() -> None:
    """Slow and lost calls are counted, the longest is remembered; a minute later nothing of them is left."""
    recent = Recent()
    recent.add(0, SLOW_S)
    recent.add(1, 2.5)
    recent.add(SLOT_S, 0.125, lost=True)
    assert recent.read(SLOT_S + 1) == RecentCalls(3, 2, 1, 2_500)
    assert recent.read(KEPT_S + 1) == RecentCalls(1, 1, 1, 125)
    assert recent.read(KEPT_S + SLOT_S + 1) == RecentCalls()


def test_few_slots_are_kept() -> None:
    """A node that runs for days keeps a minute."""
    recent = Recent()
    for second in range(1_000):
        recent.add(second, 0)
    assert recent.read(999).calls == KEPT_S
    assert len(recent._slots) <= KEPT_S // SLOT_S


@pytest.mark.etcd
def test_an_etcd_that_stands_still_in_pulses_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """The doctor finds it, and the metrics have it: as with a disk that hangs for a moment, again and again."""
    monkeypatch.setattr(clients, "TRY_S", WITHIN_S)  # no call is lost if the disk does hang
    with Etcd() as etcd:
        engine = open_engine(Access(etcd.endpoints), "c", 1, 1, 60_000, lambda: uuid4().hex, settle_ms=0)
        engine.register(NodeAddresses(1, {}))
        wait_until(lambda: engine.core.claims.may_claim, "the node may claim partitions", WITHIN_S)
        own, _ = opened(engine)
        pulses = 0
        while not found(engine) and pulses < PULSES_MAX:
            pulses += 1
            etcd.members[0].freeze()
            outcome, began = begin_append(engine, own, [record(pulses)]), monotonic()
            wait_until(lambda: monotonic() > began + SLOW_S, "the call takes long", WITHIN_S)  # noqa: B023 - at once
            etcd.members[0].thaw()
            assert outcome.get(timeout=WITHIN_S) is None
        assert engine.numbers().recent.slow >= SLOW_MIN
        (text,) = found(engine)
        assert re.fullmatch(
            r"etcd is slow: in the last minute \d+ of \d+ calls of node 1 took longer than 100 ms, up to \d+ ms, "
            "and 0 had no answer",
            text,
        )
        seconds = engine.numbers().seconds
        slow = next(place for place, end in enumerate(SECONDS) if end > SLOW_S)
        assert sum(seconds.counts[slow:]) >= SLOW_MIN
        engine.close()


def found(engine: EtcdEngine) -> list[str]:
    """The words of the doctor about the store, as this node sees it."""
    numbers = engine.numbers()
    stores = {1: StoreHealth(*numbers.recent, numbers.used, numbers.quota)}
    return [each.found for each in cluster_findings((), {}, stores, (), 0)]
