"""The cost of an observer by counted calls of Python functions, because a clock tells little on a shared machine.

`python -m benchmarks.observe` measures CPU and memory.
"""

from __future__ import annotations

import threading
from typing import Any

from coordinator.client.client import Client, Cluster
from coordinator.client.offsets_log import OffsetsReader
from coordinator.observe.asking import Asking, Budget
from coordinator.observe.live import Live
from coordinator.observe.watching import Watching
from coordinator.story.described import CoordinatorNode, Group, Member
from tests.client.scripted import Clock, Scripted
from tests.observe.conftest import Written
from tests.support.calls import calls_of
from tests.support.patience import WITHIN_S
from tests.support.tenure import Tenure

GROUPS, PARTITIONS = 20, 50
AT_REST_MAX, BEHIND_MAX = 22, 112
"""Calls of a look for each topic partition: of one that has read all, and of one with records to read, for which the
look also asks where its log begins and where open transactions are. Requests and answers take 17 of them, and 43."""

IDLE_MAX = 32
"""Calls for each partition of the groups' log that has no record: nearly all of them read the answer."""


class Cloud:
    """A scripted cluster: GROUPS groups of a member each, with PARTITIONS topic partitions of one topic each.

    Each answer has higher offsets. lag: of each topic partition.
    """

    def __init__(self, lag: int) -> None:
        self.lag = lag
        self.offset = 100
        self.server = Scripted(
            {
                "OffsetFetch": [self._committed],
                "ListOffsets": [self._ends],
                "DescribeConfigs": [{}],
                "DescribeProducers": [{}],
            }
        )
        self.server.partitions = PARTITIONS

    def looks(self, written: Written) -> list[int]:
        """The calls of some looks at all groups, for each topic partition."""
        with self.server:
            clock = Clock()
            asking = Asking(Cluster(self.server.bootstrap), Budget(1, 10_000, clock=clock, pause=clock.pause), WITHIN_S)
            live = Live(asking, written.lines, lambda _: None)
            node = CoordinatorNode(7, "127.0.0.1", self.server.port)
            for number in range(GROUPS):
                name = f"t-{number}"
                member = Member("m-1", None, "worker", "/h", {name: list(range(PARTITIONS))}, frozenset({name}))
                live.groups = {**live.groups, name: Group(name, "Stable", "consumer", "range", node, [member])}
            ready = threading.Event()
            watching = Watching(asking, live, [], ready, clock=clock)
            with asking.open(anew=True) as client:
                found = [calls_of(lambda: watching.look(client)) // (GROUPS * PARTITIONS) for _ in range(4)]
            asking.close()
        assert len(self.server.asked("OffsetFetch")) == len(found)
        return found

    def _committed(self, request: Any) -> Any:
        self.offset += 5
        partitions = [{"partition_index": index, "committed_offset": self.offset} for index in range(PARTITIONS)]
        names = [each.group_id for each in request.groups]
        return {"groups": [{"group_id": name, "topics": [{"name": name, "partitions": partitions}]} for name in names]}

    def _ends(self, request: Any) -> Any:
        return {
            "topics": [
                {
                    "name": topic.name,
                    "partitions": [
                        {"partition_index": each.partition_index, "offset": self.offset + self.lag}
                        for each in topic.partitions
                    ],
                }
                for topic in request.topics
            ]
        }


def test_a_look_costs_few_calls_for_each_topic_partition(written: Written) -> None:
    """Most have read all, though their offsets move: such a one has no line and no track of its own."""
    _, *later = Cloud(lag=0).looks(written)
    assert max(later) <= AT_REST_MAX


def test_a_look_at_records_to_read_costs_a_bounded_number_of_calls(written: Written) -> None:
    """Each has a line, a track, and a place in the history of lag."""
    _, *later = Cloud(lag=7).looks(written)
    assert max(later) <= BEHIND_MAX


def test_a_partition_of_the_log_without_records_costs_little() -> None:
    """The log has 50 of them, and the observer asks five times a second."""
    with Tenure() as tenure, Client(tenure.bootstrap, WITHIN_S) as client:
        reader = OffsetsReader(client)
        reader.poll_each(0)
        calls = calls_of(lambda: reader.poll_each(0))
        assert len(reader.reached) == 50
        assert calls // 50 <= IDLE_MAX
