"""The story of a scene's group and its findings, without files."""

from __future__ import annotations

from collections.abc import Iterable

from coordinator.audit.check.checks import Finding
from coordinator.audit.check.history import History, Story
from coordinator.audit.check.limits import Limits
from coordinator.audit.read.events import GroupEvents
from coordinator.audit.read.parse import Row, parse_record
from protocol.records.walk import decode_batches
from tests.audit.scenes import GROUP, Scene


def rows_of(scene: Scene) -> list[Row]:
    """Return the scene's rows of the table `records`."""
    return [
        row
        for batch in decode_batches(b"".join(scene.batches))
        for offset, record in zip(batch.offsets, batch.records, strict=True)
        for row in parse_record(0, offset, record)["records"]
    ]


def run_history(
    partition: int, group: str, limits: Limits, rows: Iterable[Row], end_ms: int, recorded: GroupEvents | None = None
) -> tuple[Story, list[Finding]]:
    """Return the story of one group and its findings, from its rows of `records` in the order of their offsets.

    end_ms: the time of the last record of the partition. recorded: the events that the server recorded for the group.
    """
    history = History(partition, group, limits, recorded)
    for row in rows:
        history.add(row)
    return history.finish(end_ms)


def story_of(scene: Scene, limits: Limits | None = None) -> tuple[Story, list[Finding]]:
    """Return the story of the scene's group, and its findings."""
    return run_history(0, GROUP, limits or Limits(), rows_of(scene), scene.now_ms)


def checks(scene: Scene) -> list[str]:
    """Return the names of the checks that find something."""
    return [finding.check for finding in story_of(scene)[1]]
