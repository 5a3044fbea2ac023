"""The rules of a history: each finds what it is for, planted into a history that is right, and nothing in that one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cluster_history import OK, Asked, gaps, lost_commits, percentile, read, stood_still, write, wrongs

NOT_COORDINATOR = 16


def asked(kind: str, sent: float, value: int = -1, *, node: int = 0, member: int = 0, error: int | None = OK) -> Asked:
    """A request of the group whose answer takes a tenth of a second."""
    return Asked("g", kind, member, node, sent, None if error is None else sent + 0.1, error, value)


RIGHT = [
    asked("commit", 1.0, 1),
    asked("fetch", 2.0, 1),
    asked("commit", 3.0, 2, error=None),  # it was done, as the next read shows
    asked("fetch", 4.0, 2, node=1),
    asked("commit", 5.0, 3, error=NOT_COORDINATOR),
    asked("fetch", 6.0, 2, node=1),
    asked("commit", 7.0, 4, node=1),
    asked("heartbeat", 7.1, node=0, member=-1, error=NOT_COORDINATOR),
    asked("fetch", 8.0, 4, node=1),
]


def found(*planted: Asked) -> set[str]:
    """The names of what is wrong with the history and what was planted into it."""
    return {each.what for each in wrongs([*RIGHT, *planted])}


def test_a_right_history_has_nothing_wrong() -> None:
    """Requests without an answer may be done or not, and a former coordinator may say that it is none."""
    assert found() == set()


def test_a_read_older_than_an_acknowledged_commit_is_stale() -> None:
    """It is enough that the commit was acknowledged before the read was sent; while both are under way, it isn't."""
    assert "stale read" in found(asked("fetch", 7.2, 2, node=0))
    assert found(asked("fetch", 7.05, 2, node=1)) == set()


def test_a_read_older_than_an_earlier_read_is_wrong() -> None:
    """A write without an answer that has been seen once must be seen from then on."""
    assert found(asked("fetch", 4.5, 1, node=1)) == {"backward read"}


def test_a_number_that_nobody_wrote_is_wrong() -> None:
    """Neither a number beyond all, nor one that is sent after the answer."""
    assert "unwritten read" in found(asked("fetch", 9.0, 77))
    assert "unwritten read" in found(asked("fetch", 6.2, 4))


def test_a_yes_in_the_midst_of_another_nodes_time_is_late() -> None:
    """A heartbeat counts too; a yes between two nodes' times is none, nor one that is sent before the other node's."""
    between = (asked("heartbeat", 7.3, node=1), asked("heartbeat", 7.6, node=1))
    late = asked("heartbeat", 7.45)
    assert found(*between) == set()
    assert found(*between, late) == {"late yes"}
    assert found(*between, late, asked("heartbeat", 7.42, node=1, error=NOT_COORDINATOR)) == set()
    assert found(asked("heartbeat", 3.9)) == set()
    moved = (asked("heartbeat", 30.0), asked("heartbeat", 30.3, node=1), asked("heartbeat", 30.6, node=1))
    under_way = Asked("g", "commit", 0, 0, 30.35, 30.55, OK)
    assert found(*moved, under_way) == set(), "sent before the other node answered"
    assert found(*moved, under_way._replace(sent=30.45)) == {"late yes"}


def test_a_node_that_stood_still_decides_when_it_goes_on() -> None:
    """It finds requests from before the other node's time. One from before it was frozen may have had its answer.

    A node that answered nobody for long may have been slow, or nobody may have asked it.
    """
    others = [asked("heartbeat", 20.0), asked("heartbeat", 23.5, node=1), asked("heartbeat", 25.2, node=1)]
    found_at_25 = Asked("g", "heartbeat", -1, 0, 20.5, 25.0, OK)
    frozen = (*others, stood_still(0, 20.4, 24.9))
    assert found(*frozen, found_at_25) == {"late yes"}
    assert found(*frozen, found_at_25._replace(sent=20.35)) == set(), "under way when the node was frozen"
    assert found(*frozen, found_at_25._replace(error=NOT_COORDINATOR)) == set()
    assert found(*others, found_at_25) == set()
    assert found(*others, stood_still(2, 20.4, 24.9), found_at_25) == set(), "another node"


def test_a_no_that_is_noted_too_early_counts() -> None:
    """A probe that lags reads answers of several connections in any order, and a lost request has only a beginning."""
    moved_and_back = [
        Asked("g", "heartbeat", 0, 1, 20.0, 20.5, OK),
        Asked("g", "heartbeat", 1, 0, 20.6, 20.7, OK),
        Asked("g", "heartbeat", 1, 1, 20.8, 20.9, OK),
    ]
    assert found(*moved_and_back) == {"late yes"}
    earlier = Asked("g", "heartbeat", 1, 1, 19.9, 20.4, NOT_COORDINATOR)
    assert found(*moved_and_back, earlier) == set()
    assert found(*moved_and_back, earlier._replace(got=None, error=None)) == set()
    assert found(*moved_and_back, earlier._replace(got=19.95)) == {"late yes"}
    assert found(*moved_and_back, earlier._replace(sent=18.9, got=None, error=None)) == {"late yes"}
    assert found(*moved_and_back, earlier._replace(sent=21.0, got=21.1)) == {"late yes"}


def test_a_node_that_stops_and_is_back_within_3_s_was_not_the_coordinator_all_the_time() -> None:
    """Its last yes may go to an anchor, behind its no to the members; the end of the anchor's connection shows it."""
    rolled = [
        asked("heartbeat", 20.0),
        Asked("g", "commit", -1, 0, 20.15, 20.35, OK),
        asked("heartbeat", 20.5, node=1),
        asked("heartbeat", 22.0),
    ]
    assert found(*rolled) == {"late yes"}
    assert found(*rolled, asked("heartbeat", 20.2, error=NOT_COORDINATOR)) == set()
    assert found(*rolled, asked("heartbeat", 20.4, member=-1, error=None)) == set()


def test_a_commit_that_is_gone_at_the_end_is_lost() -> None:
    """Only what was acknowledged has to be there; more may be."""
    assert lost_commits(RIGHT, {"g": 4}) == []
    assert lost_commits(RIGHT, {"g": 5}) == []
    assert lost_commits(RIGHT, {"g": 3}) == ["g: 4 was acknowledged, 3 is there"]


def test_the_gap_is_the_longest_time_without_a_yes() -> None:
    """From the first moment to the last; anchors and errors are no success."""
    assert gaps(RIGHT, 1.0, 8.5)["g"] == pytest.approx(2.0)
    assert gaps(RIGHT, 1.0, 20.0)["g"] == pytest.approx(20.0 - 8.1)
    assert set(gaps(RIGHT, 1.0, 8.5, each_member=True)) == {"g/0"}
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([], 0.99) == 0


def test_a_history_is_the_same_after_a_file(tmp_path: Path) -> None:
    """Written and read again, it is the same."""
    history = [*RIGHT, stood_still(0, 1.0, 2.0)]
    write(history, tmp_path / "history.jsonl")
    assert read(tmp_path / "history.jsonl") == history
