"""How long logs keep the records that groups have not read, by the topics' retention.ms.

A topic's settings say how long it keeps a record, and ListOffsets with a timestamp says which records are older than a
time. So two questions tell whether the record at a committed offset is about to go: within a tenth of the topic's
retention, or within a hundredth. The user needs DescribeConfigs on the topic.

A log deletes whole segments, so a record may stay longer.

House rule: a topic whose settings nobody tells is left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from coordinator.client.client import Client
from coordinator.client.errors import Refused
from coordinator.client.topics import TOPIC, Leaders, TopicPartition, described_settings, log_end_offsets
from coordinator.story.offsets import Expiry

PARTS = 10, 100
"""The parts of a topic's retention that are asked for."""

KNOWN_S = 60.0
"""How long an answer counts."""


class Retention:
    """See the module. clock: in seconds. wall_ms: Unix time. An object remembers answers for KNOWN_S."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._clock = clock
        self._wall_ms = wall_ms
        self._kept: dict[str, tuple[float, int]] = {}
        """By topic, when it was asked for, and its retention; 0 if it keeps records for ever, or nobody tells."""
        self._known: dict[TopicPartition, tuple[float, tuple[Expiry, ...]]] = {}

    def expiries(
        self, client: Client, behind: Mapping[TopicPartition, int], leaders: Leaders
    ) -> dict[TopicPartition, tuple[Expiry, ...]]:
        """The expiries of topic partitions with records to read, the widest first. behind: the ends of their logs."""
        now = self._clock()
        self._known = {pair: known for pair, known in self._known.items() if now - known[0] < KNOWN_S}
        self._kept = {topic: kept for topic, kept in self._kept.items() if now - kept[0] < KNOWN_S}
        asked = set(behind.keys() - self._known.keys())
        self._ask_settings(client, {topic for topic, _ in asked}, now)
        for part in PARTS:
            asked = {pair for pair in asked if self._kept[pair[0]][1]}
            within = {pair: self._kept[pair[0]][1] // part for pair in asked}
            wanted = {pair: self._wall_ms() - self._kept[pair[0]][1] + within[pair] for pair in asked}
            found = log_end_offsets(client, wanted, wanted, leaders)
            for pair, offset in found.items():
                expiry = Expiry(within[pair], behind[pair] if offset < 0 else offset)  # -1: all records are older
                self._known[pair] = now, (*self._known.get(pair, (now, ()))[1], expiry)
            asked = set(found)
        return {pair: self._known[pair][1] for pair in behind if pair in self._known}

    def _ask_settings(self, client: Client, topics: set[str], now: float) -> None:
        unknown = sorted(topics - self._kept.keys())
        if not unknown:
            return
        self._kept |= dict.fromkeys(unknown, (now, 0))
        try:
            results = described_settings(client, TOPIC, unknown, ("retention.ms", "cleanup.policy"))
        except Refused:
            return
        for result in results:
            values = {each.name: each.value or "" for each in result.configs}
            if "delete" in values.get("cleanup.policy", ""):
                self._kept[result.resource_name] = now, max(int(values.get("retention.ms") or 0), 0)
