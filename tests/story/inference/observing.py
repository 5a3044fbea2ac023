"""An observer's events of a scene's log, and short forms of their causes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from coordinator.story.events import RebalanceEnded
from coordinator.story.inference.observed import Batch, Observed
from protocol.records.walk import decode_batches
from tests.audit.scenes import Scene


def events_of(scene: Scene, observed: Observed | None = None, **described: Any) -> list[Any]:
    """The events that the inference makes of a scene."""
    return list(follow(scene, observed or Observed(**described)))


def follow(scene: Scene, observed: Observed, *, begin: int = 0) -> Iterable[Any]:
    """Feed a scene's batches from an offset on, as a reader does."""
    for batch in decode_batches(b"".join(scene.batches)):
        place = Batch(batch.header.base_offset, batch.header.partition_leader_epoch, batch.header.is_transactional)
        for offset, record in zip(batch.offsets, batch.records, strict=True):
            if offset < begin:
                continue
            if batch.header.is_control:
                observed.passed(offset)
            else:
                yield from observed.add(offset, record.timestamp_ms, record.key, record.value, place)
        yield from observed.end_batch()


def kinds(event: RebalanceEnded) -> list[str]:
    """The kinds of a rebalance's causes; those that fit, with a slash, where the log doesn't tell."""
    return ["/".join(cause.possible or [cause.kind]) for cause in event.causes]


def told(scene: Scene, observed: Observed | None = None) -> list[tuple[str, int, list[str]]]:
    """Outcome, generation and kinds of causes of each rebalance."""
    return [
        (event.outcome, event.generation, kinds(event))
        for event in events_of(scene, observed)
        if isinstance(event, RebalanceEnded)
    ]


def last_kinds(scene: Scene) -> list[str]:
    """The kinds of the causes of the last rebalance."""
    return told(scene)[-1][2]
