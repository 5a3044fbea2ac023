"""The findings about the nodes of a cluster."""

from __future__ import annotations

from coordinator.story.cluster_diagnosis import MOVES_MIN, MOVES_MS, cluster_findings
from coordinator.story.described import StoreHealth
from coordinator.story.diagnosis import OVER_MS, Finding, Severity
from coordinator.story.entries import Entry, Loaded
from coordinator.text import NAMED_MAX
from tests.support.told import entries_of, told

NOW_MS = 10_000_000


def moved(at_ms: int, node: int, former_node: int) -> Entry:
    """A group that was loaded by another node than before."""
    return Loaded(told("group_loaded", at_ms=at_ms), node, former_node)


def flapping(times: int, every_ms: int = 10_000, end_ms: int = NOW_MS) -> list[Entry]:
    """A group that goes between nodes 0 and 1, the last time at `end_ms`."""
    return [moved(end_ms - every_ms * number, number % 2, 1 - number % 2) for number in range(times - 1, -1, -1)]


def found(entries: dict[str, list[Entry]], *ownerless: int) -> list[Finding]:
    """The findings about partitions and groups."""
    return list(cluster_findings(ownerless, entries, {}, (), NOW_MS))


def found_of(stores: dict[int, StoreHealth], *away: int) -> list[Finding]:
    """The findings about nodes and their store."""
    return list(cluster_findings((), {}, stores, away, NOW_MS))


def store(calls: int = 100, slow: int = 0, lost: int = 0, used: int = 0) -> StoreHealth:
    """The store of a node."""
    return StoreHealth(calls, slow, lost, 750, used, 1_000)


def test_nodes_that_are_away() -> None:
    """A warning that names them."""
    (finding,) = found_of({}, 12, 3)
    assert (finding.kind, finding.severity) == ("nodes_away", "warning")
    assert finding.found == "nodes 3, 12 are away; other nodes have the groups"
    assert found_of({}, 3)[0].found == "node 3 is away; other nodes have the groups"


def test_a_slow_store() -> None:
    """One finding, with the numbers of the slowest node; a few slow calls are none."""
    (finding,) = found_of({1: store(), 2: store(slow=6), 3: store(slow=30), 4: store(calls=6, lost=5)})
    assert (finding.kind, finding.severity, finding.group_id) == ("store_slow", "warning", None)
    assert finding.found == (
        "etcd is slow: in the last minute 30 of 100 calls of node 3 took longer than 100 ms, up to 750 ms, and 0 had "
        "no answer; so did nodes 2, 4"
    )
    assert not found_of({1: store(slow=5), 2: store(calls=10, slow=4), 3: store(calls=200, lost=10)})


def test_a_store_that_fills() -> None:
    """A warning from 60 % on, an error from 80 % on, when nodes take no new groups."""
    assert not found_of({1: store(used=599)})
    assert [(each.kind, each.severity) for each in found_of({1: store(used=600)})] == [("store_full", "warning")]
    (finding,) = found_of({1: store(used=0), 2: store(used=800)})
    assert finding.severity == "error"
    assert finding.found == "etcd has 800 of 1000 bytes in use (tenure.store.quota.bytes): new groups are refused"


def test_partitions_that_no_node_has() -> None:
    """An error with their numbers, up to a limit."""
    (finding,) = found({}, 7, 3)
    assert (finding.kind, finding.severity, finding.group_id) == ("partitions_without_node", "error", None)
    assert finding.found.startswith("no node has 2 of the partitions of __consumer_offsets (3, 7): ")
    (finding,) = found({}, *range(NAMED_MAX + 2))
    assert "8, 9 and 2 more)" in finding.found
    assert not found({})


def test_a_group_that_goes_from_node_to_node() -> None:
    """One finding for all groups, with the one that moved most often; other loads don't count."""
    loads = entries_of(*[told("group_loaded", at_ms=NOW_MS)] * MOVES_MIN)
    (finding,) = found({"g": flapping(MOVES_MIN), "h": flapping(MOVES_MIN + 1), "i": loads})
    assert (finding.kind, finding.severity, finding.group_id) == ("nodes_flap", "warning", None)
    assert finding.found == (
        "group h went from node to node 6 times in 50 s (nodes 0, 1), and 1 more of the groups looked at did so too"
    )
    assert (finding.last_at_ms, finding.times) == (NOW_MS, 6)


def test_a_rolling_restart_is_no_flapping() -> None:
    """It makes fewer moves; the same number over a longer time is none either."""
    assert not found({"g": flapping(MOVES_MIN - 1)})
    assert not found({"g": flapping(3 * MOVES_MIN, MOVES_MS // (MOVES_MIN - 1))})


def test_flapping_that_is_over() -> None:
    """A notice once it was not seen for a while; a single later move makes it no newer."""
    over = flapping(MOVES_MIN, end_ms=NOW_MS - OVER_MS)
    (finding,) = found({"g": over})
    assert finding.severity is Severity.NOTICE
    assert finding.found.endswith("; not seen for 10 minutes or more")
    (finding,) = found({"g": [*over, moved(NOW_MS, 2, 0)]})
    assert (finding.severity, finding.times) == (Severity.NOTICE, MOVES_MIN)
