"""Chains of moves that make a group more equal, or as equal with fewer partitions moved from their owners.

A single move doesn't help if member A has 3 partitions, B has 2 and C has 1, A shares a topic with B only, and B
another with C. Two moves do. And of two members with equally good sizes one may want a partition that was its own.

Such chains are cycles of a graph. A member leads to each topic that it has partitions of, and a topic to each of its
subscribers: a partition travels. All members lead to the sink and back: their sizes change. What an edge costs is what
it makes worse. Sizes count most: a member of size S costs (S + 1)² - S² = 2 S + 1 if it grows, and 2 S - 1 less if it
shrinks, times `weight`. A partition that its owner loses costs 1. So a group can be made better if, and only if, the
graph has a cycle whose costs are negative together. The method is Bellman's and Ford's: costs of the cheapest way to
each node fall for ever along such a cycle, so the ways close to a ring.

House rule: a cycle is carried out whole or not at all, so that every partition has a member between two steps.
"""

from __future__ import annotations

from collections.abc import Generator
from itertools import pairwise

from coordinator.group.consumer.assignors.subscriber import Pauses
from coordinator.group.consumer.assignors.table import Table

EDGES_MAX = 2_000_000
"""Edges that are looked at for one target, about 0.2 µs each. Groups of a hundred members need a fraction of them."""
ROUNDS_MIN = 200
"""Graphs so large that all their edges can't be looked at this often aren't looked at: single moves come near enough.
A few chains in a group of thousands would only move partitions again at each change.
"""

NONE = -1


def exchange(table: Table, pauses: Pauses) -> Generator[None, None, None]:
    """Carry out negative cycles until there is none, or the limit is reached."""
    graph = Graph(table)
    edges_left = EDGES_MAX
    if graph.edges * ROUNDS_MIN > edges_left:
        return
    while True:
        graph.begin()
        rings: list[list[int]] = []
        while not rings:
            edges_left -= graph.edges
            if edges_left < 0:
                return
            falls = yield from graph.fall(pauses)
            if not falls:
                return
            rings = graph.rings()
            if pauses.due(len(graph.way)):
                yield None
        for ring in rings:
            graph.carry_out(ring)


class Graph:
    """The nodes are members, topics, and the sink, in this order. way: the node before each on the cheapest way."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._topics = list(table.topics.values())
        self._members = len(table.sizes)
        self._sink = self._members + len(self._topics)
        # A cycle visits a member once, so it moves fewer partitions than that.
        self._weight = 2 * self._members + 1
        self.edges = 2 * (self._members + sum(len(topic.subscribers) for topic in self._topics))
        self._costs: list[int] = []
        self.way: list[int] = []

    def begin(self) -> None:
        """Forget all ways."""
        self._costs = [0] * (self._sink + 1)
        self.way = [NONE] * (self._sink + 1)

    def fall(self, pauses: Pauses) -> Generator[None, None, bool]:
        """Look at all edges once; whether some way became cheaper."""
        costs, way = self._costs, self.way
        has_fallen = False
        for node, topic in enumerate(self._topics, self._members):
            best, come_from = costs[node], way[node]
            for member, count in topic.held.items():
                if count and costs[member] + topic.loss(member) < best:
                    best, come_from = costs[member] + topic.loss(member), member
            has_fallen |= best < costs[node]
            costs[node], way[node] = best, come_from
            for member in topic.subscribers:
                if best - 1 < costs[member]:
                    cost = best + topic.gain(member)
                    if cost < costs[member]:
                        costs[member], way[member] = cost, node
                        has_fallen = True
            if pauses.due(len(topic.held) + 2 * len(topic.subscribers)):
                yield None
        has_fallen |= yield from self._fall_at_sink(pauses)
        return has_fallen

    def _fall_at_sink(self, pauses: Pauses) -> Generator[None, None, bool]:
        costs, way, sizes, weight, sink = self._costs, self.way, self._table.sizes, self._weight, self._sink
        before = costs[sink]
        has_fallen = False
        for member, size in enumerate(sizes):
            cost = costs[member] + weight * (2 * size + 1)
            if cost < costs[sink]:
                costs[sink], way[sink] = cost, member
            if pauses.due(1):
                yield None
        for member, size in enumerate(sizes):
            cost = costs[sink] - weight * (2 * size - 1)
            if size and cost < costs[member]:
                costs[member], way[member] = cost, sink
                has_fallen = True
            if pauses.due(1):
                yield None
        return has_fallen or costs[sink] < before

    def rings(self) -> list[list[int]]:
        """The cycles among the cheapest ways; each begins and ends with the same node. No two share a node."""
        seen = [NONE] * len(self.way)
        found = []
        for start in range(len(self.way)):
            node = start
            while node != NONE and seen[node] == NONE:
                seen[node] = start
                node = self.way[node]
            if node != NONE and seen[node] == start:
                ring = [node]
                while len(ring) == 1 or ring[-1] != node:
                    ring.append(self.way[ring[-1]])
                found.append(ring[::-1])
        return found

    def carry_out(self, ring: list[int]) -> None:
        """Move a partition over each topic of a cycle."""
        for before, node in pairwise(ring):
            if self._members <= node < self._sink:
                self._table.take(self._topics[node - self._members], before)
            elif self._members <= before < self._sink:
                self._table.give(self._topics[before - self._members], node)
