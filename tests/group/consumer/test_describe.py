"""Descriptions of groups of the consumer protocol: who holds the others up."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.group.consumer import describe
from coordinator.group.consumer.group import UNRELEASED
from tests.group.consumer.play import Play
from tests.group.consumer.test_static import seats


def waiting(play: Play) -> Any:
    """What the group says that it waits for."""
    return play.describe(waiting=True).waiting


def awaited(play: Play) -> list[tuple[str, str, int, int]]:
    """The members that hold others up: id, phase, partitions, and for how many ms already."""
    now_ms = play.now().wall_ms
    return [(each.member_id, each.phase, each.partitions, now_ms - each.since_ms) for each in waiting(play).members]


def pair() -> Play:
    """a has four partitions; b joins, and a has not heard of it."""
    play = Play()
    play.join("a")
    play.join("b")
    return play


def test_only_who_asks_is_told() -> None:
    """A request without our field gets the answer that Kafka gives."""
    assert pair().describe().waiting.since_ms == -1


def test_members_show_their_silence() -> None:
    """A description has the session timeout and the silence of each member, if the client asks for them."""
    play = Play()
    play.join("a")
    play.wait(400)
    play.join("b")
    play.wait(100)
    for is_asked, told in ((True, [(45_000, 500), (45_000, 100)]), (False, [(-1, -1)] * 2)):
        members = play.describe(waiting=is_asked).members
        assert [(each.session_timeout_ms, each.silent_ms) for each in members] == told


def test_a_member_that_has_not_heard_of_the_target_is_waited_for() -> None:
    """Until its next heartbeat, and at most until its session ends."""
    play = pair()
    play.wait(700)
    assert awaited(play) == [("a", "acknowledging", 0, 700)]
    assert waiting(play).members[0].until_ms == play.now().wall_ms + 45_000 - 700


def test_a_member_that_must_give_up_partitions_is_waited_for() -> None:
    """Since it was asked, until its rebalance timeout; who waits for these partitions holds nobody up."""
    play = pair()
    play.wait(300)
    play.beat("a", 2, {"t": [0, 1, 2, 3]})
    play.wait(700)
    assert awaited(play) == [("a", "revoking", 2, 700)]
    assert waiting(play).members[0].until_ms == play.now().wall_ms + 10_000 - 700
    kept = sorted(*play.group.members["a"].assigned.values())
    play.beat("a", 2, {"t": kept})
    (b,) = waiting(play).members
    assert (b.member_id, b.phase, b.since_ms) == ("b", "acknowledging", -1)
    play.beat("b", play.group.members["b"].epoch, {})
    assert not waiting(play).members


def test_a_member_that_is_away_is_told_with_its_seat() -> None:
    """Since it left, with the partitions that it keeps, until its session ends."""
    play = seats()
    play.wait(1_000)
    play.beat("m0", -2, instance_id="i0")
    play.wait(500)
    assert awaited(play) == [("m0", "away", 2, 500)]
    assert waiting(play).members[0].until_ms == play.now().wall_ms + 45_000 - 1_500


def test_after_a_load_the_time_of_the_load_counts() -> None:
    """The log doesn't say when a member was asked."""
    play = pair()
    play.beat("a", 2, {"t": [0, 1, 2, 3]})
    play.wait(700)
    play.restart()
    play.wait(200)
    assert awaited(play) == [("a", "revoking", 2, 200)]


def test_expressions_without_topics_are_told(play: Play) -> None:
    """Those that members have and that matched nothing."""
    play.join("a", regex="x.*")
    assert waiting(play).regexes_without_topics == []
    play.resolve(**{"x.*": []})
    assert waiting(play).regexes_without_topics == ["x.*"]


def test_a_description_names_so_many_that_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large group has no longer answer."""
    monkeypatch.setattr(describe, "AWAITED_MAX", 2)
    play = Play({"t": 8})
    for name in "abcd":
        play.join(name)
        play.beat(name, play.group.members[name].epoch)
    play.set_topics(t=12)
    play.beat("a", play.group.members["a"].epoch)
    assert len(play.group.unsettled) > 2
    assert len(awaited(play)) == 2


def test_a_description_looks_at_so_many_that_may_wait_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look costs as much as the partitions that the member waits for."""
    monkeypatch.setattr(describe, "BLOCKED_MAX", 2)
    play = Play()
    play.join("a")
    for name in "bcd":
        play.join(name)
    play.beat("a", 2, {"t": [0, 1, 2, 3]})
    for name in "bcd":
        play.beat(name, play.group.members[name].epoch, {})
    play.beat("a", 2, {"t": [0]})
    assert {member.state for name, member in play.group.members.items() if name != "a"} == {UNRELEASED}
    assert not any(map(play.group.is_blocked, play.group.members.values()))
    assert len(awaited(play)) == 2
