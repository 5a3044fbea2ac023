"""Checks the committed offsets of one group: did one go back, and which should a coordinator have dropped?

A committed offset below 0 stands for none, as in `coordinator.client.groups`; a coordinator keeps its record.

House rule: only the committed offsets that a coordinator would hold are in memory.
"""

from __future__ import annotations

from typing import NamedTuple

from coordinator.audit.check.checks import NAMES_MAX, Findings
from coordinator.audit.check.limits import Limits
from coordinator.story.records.values import read_offset, read_subscription
from protocol.consumer import CONSUMER
from protocol.messages import GroupMetadataValue


class _Committed(NamedTuple):
    """A committed offset. offset: of its record. until_ms: when it expires; None: after the retention time."""

    offset: int
    committed: int
    commit_ms: int
    until_ms: int | None


class Commits:
    """Takes a group's records of committed offsets, in their order."""

    def __init__(self, findings: Findings, limits: Limits) -> None:
        self._findings = findings
        self._limits = limits
        self._offsets: dict[tuple[str, int], _Committed] = {}

    def add(self, offset: int, pair: tuple[str, int], data: bytes | None) -> None:
        """Take a record about a topic partition."""
        if data is None:
            self._offsets.pop(pair, None)
            return
        value = read_offset(data)[1]
        before = self._offsets.get(pair)
        if before is not None and 0 <= value.offset < before.committed:
            self._findings.add(
                "commit_back", offset,
                topic=pair[0], topic_partition=pair[1], committed=value.offset,
                before=before.committed, commit_ms=value.commit_timestamp,
            )  # fmt: skip
        until_ms = None if value.expire_timestamp == -1 else value.expire_timestamp
        self._offsets[pair] = _Committed(offset, value.offset, value.commit_timestamp, until_ms)

    def committed(self) -> dict[str, int]:
        """The committed offsets now: "topic-partition" -> offset."""
        return {
            f"{topic}-{partition}": each.committed
            for (topic, partition), each in self._offsets.items()
            if each.committed >= 0
        }

    def report_orphans(
        self, state: GroupMetadataValue | None, deleted_at: int | None, end_ms: int, findings: Findings
    ) -> None:
        """Find the offsets that a coordinator should have dropped by `end_ms`.

        state: the group's last record; None if it has none, or if a tombstone at offset `deleted_at` deleted it. If the
        topics of the group's members are unknown, it has no orphans.
        """
        if state is None:
            if deleted_at is not None:
                self._report(
                    findings,
                    "the group was deleted after they were committed",
                    [pair for pair, each in self._offsets.items() if each.offset < deleted_at],
                )
        elif not state.members:
            since_ms = state.current_state_timestamp
            self._report(
                findings,
                "the group is empty, and has been for longer than offsets.retention.minutes",
                [
                    pair
                    for pair, each in self._offsets.items()
                    if self._is_expired(each, max(since_ms, each.commit_ms), end_ms)
                ],
            )
        elif state.protocol_type == CONSUMER:
            wanted: set[str] = set()
            for member in state.members:
                read = read_subscription(member.subscription)
                if read is None or not read.topics:
                    return
                wanted.update(read.topics)
            self._report(
                findings,
                "nobody subscribes to their topic, and they are older than offsets.retention.minutes",
                [
                    (topic, partition)
                    for (topic, partition), each in self._offsets.items()
                    if topic not in wanted and self._is_expired(each, each.commit_ms, end_ms)
                ],
            )

    def _is_expired(self, each: _Committed, since_ms: int, end_ms: int) -> bool:
        """Whether the offset had expired when a coordinator last looked for expired offsets."""
        until_ms = since_ms + self._limits.offsets_retention_ms if each.until_ms is None else each.until_ms
        return until_ms + self._limits.offsets_check_ms < end_ms

    def _report(self, findings: Findings, why: str, orphans: list[tuple[str, int]]) -> None:
        if orphans:
            newest = max(self._offsets[pair].offset for pair in orphans)
            names = [f"{topic}-{partition}" for topic, partition in sorted(orphans)[:NAMES_MAX]]
            findings.add("orphan_offsets", newest, why=why, count=len(orphans), topic_partitions=names)
