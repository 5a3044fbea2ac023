"""Looks at progress in the background: findings begin and end as events, within 30 s, at a bounded cost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from coordinator.client.client import Cluster
from coordinator.client.errors import Unreachable
from coordinator.client.groups import ListedGroup
from coordinator.observe import watching as module
from coordinator.observe.asking import Asking, Budget
from coordinator.observe.counts import finding_families, lag_families
from coordinator.observe.live import Live
from coordinator.observe.watching import CPU_SHARE, FREE_S, LOOK_S, ROUND_MAX_S, Watching
from coordinator.story.described import CoordinatorNode, Group, Member, Waiting
from coordinator.story.progress_diagnosis import LONG_MS
from protocol.records.batch import Record, encode_batch
from schemas.errors import ErrorCode
from tests.client.scripted import HANG_UP, Clock, Scripted
from tests.observe.conftest import Written
from tests.story.test_diagnosis import awaited
from tests.support.patience import WITHIN_S
from tests.support.started import Started
from tests.support.told import told


class Cloud(Started):
    """A scripted cluster with a topic of one partition, in which each of some groups has a member.

    offset, end: committed by each group, and of the log. stable: where readers of committed records stop; None for the
    end. pending_s: when a producer committed offsets in a transaction that is open; None for never. at_s: the time.
    """

    def __init__(self, written: Written, count: int = 1) -> None:
        self.offset, self.end, self.at_s = 5, 9, 1_000.0
        self.stable: int | None = None
        self.pending_s: float | None = None
        self.server = Scripted(
            {
                "OffsetFetch": [self._committed],
                "ListOffsets": [self._ends],
                "DescribeConfigs": [{}],
                "DescribeProducers": [self._producers],
                "ListTransactions": [{}],
                "Fetch": [self._records],
            }
        )
        clock = Clock()
        self.budget = Budget(1, 10_000, clock=clock, pause=clock.pause)
        self.asking = Asking(Cluster(self.server.bootstrap), self.budget, WITHIN_S)
        self.events: list[Any] = []
        ready = threading.Event()
        ready.set()
        self.live = Live(self.asking, written.lines, lambda _: None)
        node = CoordinatorNode(7, "127.0.0.1", self.server.port)
        member = Member("m-1", None, "worker", "/h", {"t": [0]}, frozenset({"t"}))
        names = [f"g{number:03}" for number in range(count)]
        self.live.groups = {name: Group(name, "Stable", "consumer", "range", node, [member]) for name in names}
        self.watching = Watching(
            self.asking,
            self.live,
            [self.events.extend],
            ready,
            clock=lambda: self.at_s,
            wall_ms=lambda: int(self.at_s * 1_000),
        )

    def start(self) -> None:
        """Serve."""
        self.server.start()

    def close(self) -> None:
        """Serve no more."""
        self.asking.close()
        self.server.close()

    def look(self, *, passed_s: float = LOOK_S) -> bool:
        """Look at the next groups, that much later."""
        self.at_s += passed_s
        with self.asking.open(anew=True) as client:
            return self.watching.look(client)

    def until(self, count: int, *, grows: int = 1) -> float:
        """Look until there are so many events, while records come; returns how long that took."""
        began_s = self.at_s
        while len(self.events) < count:
            assert self.at_s - began_s < 2 * LONG_MS / 1_000
            self.end += grows
            self.look()
        return self.at_s - began_s

    def _committed(self, request: Any) -> Any:
        is_held = request.require_stable and self.pending_s is not None
        partition = {
            "partition_index": 0,
            "committed_offset": -1 if is_held else self.offset,
            "error_code": ErrorCode.UNSTABLE_OFFSET_COMMIT if is_held else ErrorCode.NONE,
        }
        topics = [{"name": "t", "partitions": [partition]}]
        return {"groups": [{"group_id": each.group_id, "topics": topics} for each in request.groups]}

    def _producers(self, request: Any) -> Any:
        producers = []
        if self.pending_s is not None:
            begun_ms = int(self.pending_s * 1_000)
            producers = [{"producer_id": 9, "last_timestamp": begun_ms, "current_txn_start_offset": 3}]
        partition = {"partition_index": 0, "active_producers": producers}
        return {"topics": [{"name": request.topics[0].name, "partitions": [partition]}]}

    def _records(self, request: Any) -> Any:
        (asked,) = request.topics[0].partitions
        record = encode_batch([Record(b"k", b"v", 0)], asked.fetch_offset, 0)
        partition = {"records": record, "last_stable_offset": self.end}
        return {"responses": [{"topic": "t", "partitions": [partition]}]}

    def _ends(self, request: Any) -> Any:
        is_end = request.topics[0].partitions[0].timestamp == -1
        end = self.end if self.stable is None or not request.isolation_level else self.stable
        partition = {"partition_index": 0, "offset": end if is_end else 0}
        return {"topics": [{"name": "t", "partitions": [partition]}]}


@pytest.fixture
def cloud(written: Written) -> Iterator[Cloud]:
    """Yield a cluster with one group."""
    with Cloud(written) as made:
        yield made


def test_a_stall_is_named_within_30_s_gets_worse_and_ends(cloud: Cloud) -> None:
    """From its last commit on, so also if a client commits every 5 s; then a warning, and the end with its begin."""
    for _ in range(3):
        cloud.offset, cloud.end = cloud.offset + 3, cloud.end + 3
        cloud.look()
    assert cloud.until(1) <= 25
    (began,) = cloud.events
    said = began.type, began.group, began.kind, began.severity, began.member_id
    assert said == ("finding_began", "g000", "partition_stuck", "notice", "m-1")
    assert began.since_ms is not None
    assert began.since_ms < began.at_ms
    assert dict(cloud.watching.counts()) == {("g000", "partition_stuck"): 1}
    cloud.until(2)
    assert (cloud.events[1].severity, cloud.events[1].since_ms) == ("warning", began.since_ms)
    cloud.offset = cloud.end
    cloud.until(3, grows=0)
    assert cloud.events[2].type == "finding_ended"
    assert cloud.events[2].began_ms == cloud.events[1].at_ms
    text = [str(each) for each in finding_families(cloud.watching, 10)]
    assert "'kind': 'partition_stuck'}, value=0" in text[0]
    assert cloud.watching.found == {}


def test_a_stall_at_an_open_transaction_names_its_producer(cloud: Cloud) -> None:
    """One question about the topic's producers, however many looks the stall has."""
    cloud.stable, cloud.pending_s = 3, cloud.at_s
    began = None
    while began is None:
        cloud.end += 1
        cloud.look()
        began = next((each for each in cloud.events if each.kind == "partition_stuck"), None)
    for _ in range(3):
        cloud.look()
    assert "readers of committed records wait there: for producer id 9 (since" in began.found
    assert [each.topics[0].name for each in cloud.server.asked("DescribeProducers")].count("t") == 1


def _refused(request: Any) -> Any:
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    return {"groups": [{"group_id": each.group_id, "error_code": code} for each in request.groups]}


def test_a_cluster_that_is_away_ends_no_finding(cloud: Cloud) -> None:
    """The memory stays, whether a coordinator refuses or hangs up."""
    cloud.until(1)
    cloud.server.answers("OffsetFetch", HANG_UP, _refused, cloud._committed)
    for _ in range(3):
        cloud.look()
    assert len(cloud.events) == 1
    assert cloud.watching.found.keys() == {"g000"}


def test_a_group_that_is_gone_has_no_findings(cloud: Cloud) -> None:
    """They end with the group, and its events go."""
    cloud.watching.put([told("group_loaded", group="g000", generation=4)])
    cloud.until(1)
    assert cloud.events[0].generation == 4
    cloud.live.groups = {}
    cloud.look()
    assert [each.type for each in cloud.events] == ["finding_began", "finding_ended"]


def test_a_group_that_is_described_later_has_its_history(cloud: Cloud) -> None:
    """Its members came and went between two descriptions: the group is silent as of the event before the first one."""
    groups, cloud.live.groups = cloud.live.groups, {}
    cause = {"kind": "member_left", "member_ids": ["i-1"]}
    at_ms = int(cloud.at_s * 1_000)
    cloud.watching.put(
        [told("rebalance_ended", group="g000", at_ms=at_ms, outcome="emptied", members=0, causes=[cause])]
    )
    cloud.look()
    cloud.live.groups = {name: replace(group, state="Empty", members=[]) for name, group in groups.items()}
    cloud.until(1)
    assert [(each.type, each.kind) for each in cloud.events] == [("finding_began", "silent_group")]


def test_a_transaction_that_holds_back_offsets_begins_and_ends(cloud: Cloud) -> None:
    """A transaction older than any of a healthy producer is found; a younger one costs no question about groups."""
    cloud.offset = cloud.end
    cloud.pending_s = cloud.at_s
    cloud.look()
    assert not any(each.require_stable for each in cloud.server.asked("OffsetFetch"))
    assert cloud.until(1, grows=0) <= 30
    (began,) = cloud.events
    assert (began.kind, began.severity, began.group) == ("hanging_transaction", "warning", "g000")
    cloud.pending_s = None
    cloud.until(2, grows=0)
    assert [each.type for each in cloud.events] == ["finding_began", "finding_ended"]


def test_a_streams_group_that_is_not_ready_begins_and_ends(cloud: Cloud) -> None:
    """The list of groups has its state, so it isn't described."""
    cloud.offset = cloud.end
    for state, count in (("NotReady", 1), ("Stable", 2)):
        cloud.live.listed = {"app": ListedGroup("app", "Streams", "streams", state)}
        cloud.until(count, grows=0)
    assert [(each.type, each.kind, each.group) for each in cloud.events] == [
        ("finding_began", "topology_not_ready", "app"),
        ("finding_ended", "topology_not_ready", "app"),
    ]


def test_a_rebalance_that_is_held_up_begins_and_ends(cloud: Cloud) -> None:
    """A server that says for whom it waits names the member. Every rebalance waits a little: only a long one counts."""
    cloud.offset = cloud.end
    (group,) = cloud.live.groups.values()
    since_ms = int(cloud.at_s * 1_000)
    waiting = Waiting(
        since_ms,
        since_ms + 300_000,
        is_held_open=False,
        leader=None,
        members=list(map(awaited, group.members)),
        pending=[],
    )
    cloud.live.groups = {"g000": replace(group, state="PreparingRebalance", waiting=waiting)}
    cloud.look()
    assert cloud.events == []
    assert cloud.until(1, grows=0) <= 30
    assert "to rejoin" in cloud.events[0].found
    cloud.live.groups = {"g000": group}
    cloud.until(2, grows=0)
    assert [(each.type, each.kind) for each in cloud.events] == [
        ("finding_began", "members_not_rejoined"),
        ("finding_ended", "members_not_rejoined"),
    ]


def test_many_groups_cost_a_bounded_number_of_requests(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few for each look, and the leaders now and then. Suspects come out of turn; half of the budget stays."""
    monkeypatch.setattr(module, "AT_ONCE", 4)
    with Cloud(written, 10) as cloud:
        cloud.offset = cloud.end
        assert [cloud.look() for _ in range(3)] == [False, False, True]
        names = [name for name, _, _ in cloud.server.requests if name != "ApiVersions"]
        held = ["Metadata", "DescribeProducers"]
        assert names == [*held, "Metadata", *["FindCoordinator", "OffsetFetch", "ListOffsets"] * 3]
        cloud.server.requests.clear()
        assert [cloud.look(passed_s=0) for _ in range(3)] == [False, False, True]
        assert [name for name, _, _ in cloud.server.requests] == ["OffsetFetch", "ListOffsets"] * 3
        cloud.end += 1
        for _ in range(3):
            cloud.look()
        cloud.server.requests.clear()
        cloud.end += 1
        cloud.look()
        (asked,) = cloud.server.asked("OffsetFetch")
        assert [each.group_id for each in asked.groups] == ["g000", "g001", "g008", "g009"]
        cloud.budget.take(WITHIN_S)
        for _ in range(5_000):
            cloud.budget.charge()
        cloud.server.requests.clear()
        assert not cloud.look()
        assert cloud.server.requests == []


@pytest.mark.parametrize(
    "count, spent_s, paused_s",
    [
        (1, 0.1, (0.1 - FREE_S) / CPU_SHARE),
        (1, FREE_S, LOOK_S),
        (1_000, FREE_S, FREE_S / CPU_SHARE),
        (1_000, 0.1, ROUND_MAX_S / 20),
    ],
)
def test_looks_take_a_small_share_of_a_core(written: Written, count: int, spent_s: float, paused_s: float) -> None:
    """A look that took 0.1 s of CPU is followed by a pause, that of many groups by a shorter one: a round has an end.

    A round of one look that took little is followed by the next one in time; a part of a round gets no CPU for nothing.
    A cluster that fails gets a pause too.
    """
    with Cloud(written, count) as cloud:
        pauses: list[float] = []

        class Stopping(threading.Event):
            def wait(self, timeout: float | None = None) -> bool:
                pauses.append(timeout or 0)
                if len(pauses) == 2:
                    self.set()
                return True

        times = iter((0.0, spent_s, spent_s, spent_s))
        cloud.watching._cpu = lambda: next(times)
        looked = cloud.watching.look

        def fail_later(client: Any) -> bool:
            if pauses:
                raise Unreachable("away")
            return looked(client)

        cloud.watching.look = fail_later  # type: ignore[method-assign]
        cloud.watching.run(Stopping())
        assert pauses == pytest.approx([paused_s, LOOK_S])


def test_lag_in_time_is_a_metric(cloud: Cloud) -> None:
    """The age of the record at the committed offset, and the time until all is read; groups that are gone have none."""
    cloud.offset = 9
    cloud.look()
    cloud.end, cloud.stable = 29, 9
    cloud.look(passed_s=10)
    told_of = {
        sample.name: (sample.labels, sample.value)
        for family in lag_families(cloud.watching, 10)
        for sample in family.samples
    }
    group = {"group": "g000"}
    topic = group | {"topic": "t"}
    assert told_of == {
        "kafka_consumergroup_group_sum_lag": (group, 20),
        "kafka_consumergroup_group_topic_sum_lag": (topic, 20),
        "kafka_consumergroup_group_lag": (topic | {"partition": "0"}, 20),
        "kafka_consumergroup_group_max_lag": (group, 20),
        "tenure_group_stable_sum_lag": (group, 0),
        "kafka_consumergroup_group_max_lag_seconds": (group, 10),
        "kafka_consumergroup_group_lag_seconds": (topic | {"partition": "0"}, 10),
        "tenure_group_topic_in_per_second": (topic, 2),
        "tenure_group_topic_out_per_second": (topic, 0),
        "tenure_group_catch_up_seconds": (group, float("inf")),
        "tenure_group_topic_catch_up_seconds": (topic, float("inf")),
    }
    cloud.live.groups = {}
    cloud.look()
    assert not any(family.samples for family in lag_families(cloud.watching, 10))
