"""The comparison of clusters: its tables have each figure in its place, and its groups are on all partitions."""

from __future__ import annotations

from collections import Counter

from benchmarks.cluster import Fault, Load, counts, faults_table, group_ids, loads_table, partition_of
from coordinator.group.partition import partition_for
from tests.support.cluster_history import OK, Asked, Wrong


def test_the_tables_have_a_row_for_each_fault_and_load() -> None:
    """Columns are systems; a system without etcd has no figure for it."""
    faults = {"A": {"killed": Fault(3.1, 0, 0, 0, 0)}, "B": {"killed": Fault(2.0, 1, 2, 3, 4)}}
    assert faults_table(faults).splitlines()[2] == "| killed | 3.10 s | 2.00 s | 0, 0, 0, 0 | 1, 2, 3, 4 |"
    loads = {"A": {"commits": Load(12_345.6, 1.25, 9.0, 50.4, 70.0)}, "B": {"commits": Load(10.0, 1.0, 2.0, 3.0, 0.0)}}
    assert loads_table(loads).splitlines()[2:] == [
        "| commits | A | 12,346 | 1.2 ms | 9.0 ms | 50 us | 70 us |",
        "| commits | B | 10 | 1.0 ms | 2.0 ms | 3 us |  |",
    ]


def test_only_what_a_fault_made_counts_for_it() -> None:
    """Requests that were answered before it began belong to the fault before."""
    read = Asked("g", "fetch", 0, 0, 5.0, 5.1, OK, 1)
    found = [Wrong("stale read", read, None), Wrong("late yes", read, None), Wrong("backward read", read, None)]
    assert counts(found, 4.0) == (2, 1)
    assert counts(found, 6.0) == (0, 0)


def test_groups_are_spread_over_all_partitions() -> None:
    """As many on each."""
    ids = group_ids(100, "g")
    assert all(partition_of(each) == partition_for(each, 50) for each in ids)
    assert set(Counter(partition_for(each, 50) for each in ids).values()) == {2}
