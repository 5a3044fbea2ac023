"""The page of a cluster of three nodes, which keeps no events: its nodes, their groups, and a node that dies."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from coordinator.testing.tenure import Tenure
from tests.support.browser import Browser
from tests.support.patience import WITHIN_S
from tests.support.tenure import wait_until

GROUPS = 5

COUNTS = "[...document.querySelectorAll('#nodes tbody tr')].map((row) => Number(row.cells[2].innerText))"


@pytest.fixture
def tenure() -> Iterator[Tenure]:
    """Yield three nodes with some groups."""
    with Tenure(topics={"jobs": 6}, nodes=3, settings={"tenure.http": "127.0.0.1:0"}) as made:
        for number in range(GROUPS):
            made.group(f"team-{number}").fill(1, topics=["jobs"])
        yield made


@pytest.mark.long
def test_nodes_have_the_groups_that_they_coordinate(browser: Browser, tenure: Tenure) -> None:
    """Also when the list comes after the nodes; a node that dies leaves the table, and others get its groups.

    The server keeps no events. The page says so, and neither that it isn't connected nor that nothing happened.
    """
    url, *_ = re.findall(r"HTTP: (\S+)", tenure.log)
    browser.open(url)
    own = [sum(tenure.coordinator_of(f"team-{number}") == node for number in range(GROUPS)) for node in range(3)]
    wait_until(lambda: browser.evaluate(COUNTS) == own, "all groups are counted", WITHIN_S)
    wait_until(lambda: browser.text("#where").startswith("3 nodes: 127.0.0.1:"), "the cluster is named", WITHIN_S)
    wait_until(lambda: browser.text("#live") == "no events here: asks every 10 s", "it is said", WITHIN_S)
    assert not browser.evaluate("document.querySelector('#hour').checkVisibility()")
    tenure.kill_node(2)
    browser.open_anew(url)
    wait_until(lambda: sum(browser.evaluate(COUNTS)) == GROUPS, "all groups are counted", WITHIN_S)
    assert browser.texts("#nodes tbody tr > :first-child") == ["0", "1"]
