"""Findings about the nodes of a cluster: partitions that nobody has, and groups that go from node to node.

They are about no group alone, so each has no group id. `diagnosis` says what a finding is.

House rule: as in `diagnosis`: one function per kind, and no function asks a server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from coordinator.timeline.diagnosis import NAMED_MAX, OVER, OVER_MS, Finding, Severity
from coordinator.timeline.entries import Entry

MOVES_MIN, MOVES_MS = 5, 10 * 60_000
"""Five moves of a group within ten minutes. A rolling restart makes two: the node stops, and comes back."""


def cluster_findings(
    ownerless: Sequence[int], entries: Mapping[str, Sequence[Entry]], now_ms: int
) -> Iterator[Finding]:
    """ownerless: partitions of `__consumer_offsets` without a node. entries: by group. now_ms: Unix time."""
    yield from _ownerless(ownerless)
    yield from _moves(entries, now_ms)


def _ownerless(partitions: Sequence[int]) -> Iterator[Finding]:
    if partitions:
        more = f" and {len(partitions) - NAMED_MAX} more" if len(partitions) > NAMED_MAX else ""
        names = ", ".join(map(str, sorted(partitions)[:NAMED_MAX]))
        yield Finding(
            Severity.ERROR,
            "partitions_without_node",
            None,
            f"no node has {len(partitions)} of the partitions of __consumer_offsets ({names}{more}): their groups have "
            "no coordinator",
            "a move takes a few seconds: look again. If it stays so, nodes can't claim them: their logs say why, and "
            "whether their store answers (tenure_store_lease_age_seconds)",
        )


def _moves(entries: Mapping[str, Sequence[Entry]], now_ms: int) -> Iterator[Finding]:
    """Groups that go from node to node again and again: one finding, with the group that did so most often."""
    runs = {group_id: _newest_run(found) for group_id, found in entries.items()}
    moving = {group_id: run for group_id, run in runs.items() if run}
    if not moving:
        return
    group_id, run = max(moving.items(), key=lambda item: (len(item[1]), item[0]))
    nodes = sorted({node for entry in run for node in (entry["node"], entry["former_node"])})
    others = f", and {len(moving) - 1} more of the groups looked at did so too" if len(moving) > 1 else ""
    over_s = (run[-1]["at_ms"] - run[0]["at_ms"]) / 1000
    is_over = now_ms - run[-1]["at_ms"] >= OVER_MS
    yield Finding(
        Severity.NOTICE if is_over else Severity.WARNING,
        "nodes_flap",
        None,
        f"group {group_id} went from node to node {len(run)} times in {over_s:.0f} s "
        f"(nodes {', '.join(map(str, nodes))}){others}{OVER if is_over else ''}",
        "nothing needs to be done if it has ended on purpose"
        if is_over
        else "one of these nodes starts and ends again and again, or its store hears of it too late (lease_lost in its "
        "log): a slow disk of etcd, a machine without time, or a network that is cut off",
        run[-1]["at_ms"],
        len(run),
    )


def _newest_run(entries: Sequence[Entry]) -> list[Entry]:
    """The moves of a group that ended with the newest one that had enough of them before it; [] if none had."""
    moves = [entry for entry in entries if entry["type"] == "loaded" and "former_node" in entry]
    for end in range(len(moves), MOVES_MIN - 1, -1):
        run = [entry for entry in moves[:end] if entry["at_ms"] > moves[end - 1]["at_ms"] - MOVES_MS]
        if len(run) >= MOVES_MIN:
            return run
    return []
