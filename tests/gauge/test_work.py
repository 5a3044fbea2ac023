"""A table has what the server does for a request: a change that adds a call, a system call or a byte changes it too."""

from __future__ import annotations

import pytest

from tests.gauge import gauge

ROOM, FURTHER = 1.5, 2
"""How much more a work of `gauge.SPREAD` may cost on a busy machine: more turns, and further writes and syncs."""


pytestmark = [pytest.mark.early, pytest.mark.together]


@pytest.fixture(scope="module")
def measured() -> dict[str, gauge.Counts]:
    """What each work costs."""
    if gauge.PYTHON not in gauge.TABLE.read_text().splitlines()[0]:
        pytest.skip(f"the table isn't of Python {gauge.PYTHON}, whose calls differ")
    return gauge.measure(gauge.WORKS)


@pytest.mark.parametrize("work", [work for work in gauge.WORKS if work not in gauge.SPREAD])
def test_a_work_costs_what_the_table_says(work: str, measured: dict[str, gauge.Counts]) -> None:
    """Neither more nor less, so that the table stays true. `python -m tests.gauge.gauge --write` makes it anew."""
    assert measured[work] == gauge.kept()[work]


@pytest.mark.parametrize("work", gauge.SPREAD)
def test_a_work_of_many_groups_costs_no_more_than_the_table_says(work: str, measured: dict[str, gauge.Counts]) -> None:
    """Requests of many groups at once share turns, writes and syncs."""
    for thread, counts in gauge.kept()[work].items():
        for key, count in counts.items():
            assert measured[work][thread][key] <= count * ROOM + FURTHER, f"{thread}: {key}"
