"""Findings about the nodes of a cluster: nodes that are away or flap, partitions that nobody has, a slow or full store.

They are about no group alone, so each has no group id; only `unavailable` is about one. `diagnosis` says what a finding
is.

House rule: as in `diagnosis`: one function per kind, and no function asks a server.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import UNSET

from coordinator.story.described import StoreHealth
from coordinator.story.diagnosis import ENDED_ADVICE, FORGOTTEN_MS, Finding, Severity, unless_over
from coordinator.story.entries import Entry, Loaded
from coordinator.text import NAMED_MAX, names_text

MOVES_MIN, MOVES_MS = 5, 10 * 60_000
"""Five moves of a group within ten minutes. A rolling restart makes two: the node stops, and comes back."""

SLOW_SHARE = 0.05
"""So many calls of a minute may take longer than 100 ms: a member of etcd that starts or is compacted is slow for a
moment.
"""
SLOW_MIN = 5
"""Fewer slow or lost calls than this say nothing: a node without work makes about four calls each second."""
WARNED_SHARE, FULL_SHARE = 0.6, 0.8
"""As in log.etcd.housekeeping: a node logs a warning, and takes no new groups."""

UNAVAILABLE, NOT_LISTED = "group_unavailable", "groups_not_listed"
"""The kinds of findings about groups that no coordinator answers for, and about lists that may lack groups."""
UNAVAILABLE_ADVICE = (
    "a coordinator that starts or moves takes a few seconds: look again. If it stays so, see the findings about nodes, "
    "partitions, logs and the store, and the log of the server"
)


def unavailable(group_id: str, error: str) -> Finding:
    """The finding about a group whose coordinator refuses. error: the name of its error."""
    found = f"its coordinator doesn't answer: {error}"
    return Finding(Severity.ERROR, UNAVAILABLE, group_id, found, UNAVAILABLE_ADVICE)


def not_listed(errors: Iterable[str]) -> Iterator[Finding]:
    """The finding about nodes that can't list all their groups. errors: what each said."""
    if said := "; ".join(errors):
        found = f"some groups may be missing here: {said}"
        yield Finding(Severity.ERROR, NOT_LISTED, None, found, UNAVAILABLE_ADVICE)


def cluster_findings(
    ownerless: Sequence[int],
    entries: Mapping[str, Sequence[Entry]],
    stores: Mapping[int, StoreHealth],
    away: Sequence[int],
    now_ms: int,
) -> Iterator[Finding]:
    """Findings about the nodes.

    ownerless: partitions of `__consumer_offsets` without a node. entries: by group. stores: as each node sees the
    store, by its id. away: the ids of nodes that are not there. now_ms: Unix time.
    """
    yield from _away(away)
    yield from _ownerless(ownerless)
    yield from _slow(stores)
    yield from _full(stores)
    yield from _moves(entries, now_ms)


def _away(away: Sequence[int]) -> Iterator[Finding]:
    if away:
        is_one = len(away) == 1
        names = ", ".join(map(str, sorted(away)[:NAMED_MAX]))
        yield Finding(
            Severity.WARNING,
            "nodes_away",
            None,
            f"{'node' if is_one else 'nodes'} {names} {'is' if is_one else 'are'} away; other nodes have the groups",
            "start what is away again, or see in its log why it ended; its events are not shown meanwhile",
        )


def _slow(stores: Mapping[int, StoreHealth]) -> Iterator[Finding]:
    """Nodes whose calls to the store were slow in the last minute: one finding, with the slowest node."""
    slow = {node_id: each for node_id, each in stores.items() if _is_slow(each)}
    if not slow:
        return
    node_id, worst = max(slow.items(), key=lambda item: (item[1].slow + item[1].lost, item[0]))
    others = [other for other in sorted(slow) if other != node_id]
    also = f"; so did nodes {', '.join(map(str, others[:NAMED_MAX]))}" if others else ""
    yield Finding(
        Severity.WARNING,
        "store_slow",
        None,
        f"etcd is slow: in the last minute {worst.slow} of {worst.calls} calls of node {node_id} took longer than "
        f"100 ms, up to {worst.longest_ms} ms, and {worst.lost} had no answer{also}",
        "see etcd's own metrics (etcd_disk_wal_fsync_duration_seconds) and its machine: mostly its disk is slow or "
        "shared. A node whose lease is not renewed within tenure.store.lease.ms loses its groups",
    )


def _is_slow(store: StoreHealth) -> bool:
    bad = max(store.slow, store.lost)
    return bad >= SLOW_MIN and bad > SLOW_SHARE * store.calls


def _full(stores: Mapping[int, StoreHealth]) -> Iterator[Finding]:
    """The store fills. All nodes see the same one."""
    fullest = max(stores.values(), key=lambda each: each.used / each.quota, default=None)
    if fullest is None or fullest.used < WARNED_SHARE * fullest.quota:
        return
    is_full = fullest.used >= FULL_SHARE * fullest.quota
    yield Finding(
        Severity.ERROR if is_full else Severity.WARNING,
        "store_full",
        None,
        f"etcd has {fullest.used} of {fullest.quota} bytes in use (tenure.store.quota.bytes)"
        + (": new groups are refused" if is_full else ""),
        "delete groups that nobody needs, or raise etcd's --quota-backend-bytes and tenure.store.quota.bytes together",
    )


def _ownerless(partitions: Sequence[int]) -> Iterator[Finding]:
    if partitions:
        names = names_text([str(partition) for partition in sorted(partitions)])
        yield Finding(
            Severity.ERROR,
            "partitions_without_node",
            None,
            f"no node has {len(partitions)} of the partitions of __consumer_offsets ({names}): their groups have "
            "no coordinator",
            "a move takes a few seconds: look again. If it stays so, nodes can't claim them: their logs say why "
            "(key_unreadable names a key of etcd that keeps a partition from them), and their metrics whether their "
            "store answers (tenure_store_lease_age_seconds)",
        )


def _moves(entries: Mapping[str, Sequence[Entry]], now_ms: int) -> Iterator[Finding]:
    """Groups that go from node to node again and again: one finding, with the group that did so most often."""
    runs = {group_id: _newest_run(found) for group_id, found in entries.items()}
    moving = {group_id: run for group_id, run in runs.items() if run and now_ms - run[-1].at_ms < FORGOTTEN_MS}
    if not moving:
        return
    group_id, run = max(moving.items(), key=lambda item: (len(item[1]), item[0]))
    nodes = sorted({node for entry in run for node in (entry.node, entry.former_node) if node is not UNSET})
    others = f", and {len(moving) - 1} more of the groups looked at did so too" if len(moving) > 1 else ""
    over_s = (run[-1].at_ms - run[0].at_ms) / 1000
    finding = Finding(
        Severity.WARNING,
        "nodes_flap",
        None,
        f"group {group_id} went from node to node {len(run)} times in {over_s:.0f} s "
        f"(nodes {', '.join(map(str, nodes))}){others}",
        "one of these nodes starts and ends again and again, or its store hears of it too late (lease_lost in its "
        "log): a slow disk of etcd, a machine without time, or a network that is cut off",
        run[-1].at_ms,
        len(run),
    )
    yield unless_over(finding, now_ms, ENDED_ADVICE)


def _newest_run(entries: Sequence[Entry]) -> list[Loaded]:
    """The moves of a group that ended with the newest one that had enough of them before it; [] if none had."""
    moves = [entry for entry in entries if isinstance(entry, Loaded) and entry.former_node is not UNSET]
    for end in range(len(moves), MOVES_MIN - 1, -1):
        run = [entry for entry in moves[:end] if entry.at_ms > moves[end - 1].at_ms - MOVES_MS]
        if len(run) >= MOVES_MIN:
            return run
    return []
