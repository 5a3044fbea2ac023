"""The tool that looks for the worst request measures a server, and its table has the worst of each API."""

from __future__ import annotations

from benchmarks.worst import KB, MB, Cost, costs, table
from tests.support.large import HEADER, TAGS, Shape, shapes


def test_each_large_request_of_an_api_is_measured() -> None:
    """A heartbeat may be large by its tagged fields; the victim's heartbeats go on beside it."""
    found = list(costs("Heartbeat", 64 * KB))
    assert [cost.shape for cost in found] == list(shapes("Heartbeat"))
    assert {cost.shape.kind for cost in found} == {HEADER, TAGS}
    assert all(0 < cost.longest_ms < 60_000 for cost in found)


def test_the_table_has_the_worst_request_of_each_api() -> None:
    """The longest heartbeat and the most memory may be of two requests; memory above the goal is marked."""
    shape = Shape("Heartbeat", 4, (), TAGS)
    rows = {
        ("Heartbeat", MB): [Cost(shape, MB, 7.0, 3 * MB, 0, 0.1), Cost(shape, MB, 2.0, 69 * MB, 0, 0.1)],
        ("Heartbeat", 2 * MB): [Cost(shape, 2 * MB, 1.0, 72 * MB, 0, 0.1)],
    }
    columns = [list(column.cells) for column in table([MB, 2 * MB], rows).columns]
    assert columns == [["Heartbeat"], ["7 ms, 69 MB!"], ["1 ms, 72 MB"]]
