"""The history of groups that a test kit's server keeps."""

from __future__ import annotations

from pathlib import Path

from coordinator.client.events import EventReader
from coordinator.story.entries import Rebalance, Timeline
from coordinator.story.schema import Gap
from coordinator.testing import Tenure
from coordinator.testing.history import History
from tests.support.patience import WITHIN_S
from tests.support.reading import poll
from tests.support.scripted import Member, hang_up, settle
from tests.support.told import shown
from tests.testing.conftest import Join, join_in, port_of


def test_a_timeline_equals_that_of_the_topic_of_events(tmp_path: Path) -> None:
    """Of a joined, changed and fenced group, the history has what `tenure explain` reads from __rebalance_events."""
    with Tenure(topics={"t": 3}, data_dir=tmp_path / "data", timeout=WITHIN_S) as server:
        one, other = (Member(port_of(server), "workers", name, 5, instance=name) for name in ("one", "other"))
        settle(one, other)
        twin = Member(port_of(server), "workers", "twin", 5, instance="other")
        twin.send_join()
        assert twin.receive_join().error_code == 0
        assert other.heartbeat() != 0
        hang_up()
        group = server.group("workers")
        group.wait_until(takeovers=1, fencings=1)
        told = group.timeline
        server.stop()
        server.start()
        with server.client() as client:
            reader = EventReader(client, "workers")
            events = reader.read()
            while len(entries := shown(Timeline("workers").add_all(events))) < len(group.timeline):
                events += poll(reader, 1_000)
        assert entries == group.timeline
        assert entries[: len(told)] == told
        assert [entry["type"] for entry in entries] == ["rebalance", "takeover", "fencing", "loaded"]


def test_a_rebalance_that_was_open_at_a_mark_is_not_new(server: Tenure, member: Join) -> None:
    """Its end belongs to the entry of its begin; the next rebalance is new."""
    one, other, third = member("one"), member("other"), member("third")
    group = server.group("workers")
    settle(one)
    other.send_join()
    group.wait_until(state="PreparingRebalance")
    mark = group.mark()
    settle(one, other)
    assert group.new_entries(mark) == []
    join_in(server, third, one, other)
    (new,) = group.new_entries(mark)
    assert isinstance(new, Rebalance)
    assert new.causes[0].member_ids == [third.member_id]
    assert new is not group.new_entries(mark)[0]


def test_trails_name_each_member_that_a_topic_partition_had(server: Tenure, member: Join) -> None:
    """One topic partition that moves there and back has three members in its trail, in their order."""
    one, other = member("b", instance="b"), member("a", instance="a")
    group = server.group("workers")
    settle(one)
    mark = group.mark()
    join_in(server, other, one)
    assert group.trails(mark) == {("t", 0): ["b", "a"], ("t", 1): [None, "b"]}
    assert group.trails(group.mark()) == {}
    assert server.history.trails("workers", 0) == {("t", 0): [None, "b", "a"], ("t", 1): [None, "b"]}


def test_a_look_between_two_requests_of_a_join_leaves_no_trace(server: Tenure, member: Join) -> None:
    """A member id that was given out has an entry until its member joins."""
    one = member("one")
    group = server.group("workers")
    one.member_id = one.ask_for_id()
    assert [entry["type"] for entry in group.timeline] == ["pending"]
    settle(one)
    assert [entry["type"] for entry in group.timeline] == ["rebalance"]


def test_groups_are_known_by_their_events() -> None:
    """A gap may concern any group: it stands in each timeline, and makes no group known."""
    history = History()
    history.write([Gap(3, 1, 2)], lambda *_: None)
    assert history.group_ids() == []
    assert [entry.type for entry in history.new_entries("any", 0)] == ["gap"]
