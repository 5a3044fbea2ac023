"""Heartbeats that repeat the one before: what ends that. `Play` checks the answers of all that could be repeated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from coordinator.config import GroupSettings
from coordinator.group.consumer.steady import Steady
from coordinator.group.events import Unload
from coordinator.group.group import NEVER
from tests.group.consumer.play import GROUP, Play


def play_of(**settings: int) -> Play:
    """A group of two steady members; `a` is static and has a topic of its own."""
    play = Play({"t": 4, "own": 1}, **settings)
    play.join("a", topics=["t", "own"], instance_id="i")
    play.join("b")
    for _ in range(4):
        for member_id in ("a", "b"):
            member = play.group.members[member_id]
            held = play.held()[member_id] if not member.revoking else {}
            play.beat(member_id, member.epoch, held)
    assert play.state() == "Stable"
    return play


def steady_of(play: Play, member_id: str = "a") -> Steady | None:
    """The member, if its next heartbeat may be answered like the last one."""
    return play.coordinator.steady(GROUP, member_id, play.now())


def set_group_config(play: Play) -> None:
    """Give the group settings of its own."""
    play.coordinator.group_configs = {GROUP: GroupSettings(50_000, 6_000, 0)}


def set_config(play: Play) -> None:
    """Change a setting of the coordinator."""
    play.coordinator.config = replace(play.config, group_consumer_heartbeat_interval_ms=6_000)


def unload(play: Play) -> None:
    """The partition goes to another node."""
    play.coordinator.handle(Unload(), play.now())
    play.coordinator.close()


CHANGES: dict[str, Callable[[Play], object]] = {
    "a member joins": lambda play: play.join("c"),
    "a member leaves": lambda play: play.leave("b"),
    "it leaves": lambda play: play.leave("a", instance_id="i"),
    "it goes away": lambda play: play.beat("a", -2, instance_id="i"),
    "its session ends": lambda play: play.wait(46_000),
    "it subscribes to something else": lambda play: play.beat("a", play.group.generation, topics=["t"]),
    "another member subscribes to something else": lambda play: play.beat("b", play.group.generation, topics=["own"]),
    "its client changes": lambda play: play.beat("a", play.group.generation, timeout_ms=7_000),
    "an administrator removes it": lambda play: play.remove(instance_id="i"),
    "a topic grows": lambda play: play.set_topics(own=2),
    "a topic goes": lambda play: play.set_topics(own=0),
    "a topic comes": lambda play: play.set_topics(new=1),
    "a setting changes": set_config,
    "a setting of the group changes": set_group_config,
    "the partition goes": unload,
    "the group is another one": lambda play: play.coordinator.groups.update({GROUP: Play().coordinator}),
}


@pytest.mark.parametrize("what", CHANGES)
def test_any_change_ends_it_at_once(what: str) -> None:
    """A heartbeat behind a change that may concern it is handled anew."""
    play = play_of()
    steady = steady_of(play)
    assert steady is not None
    assert steady.again(play.ms)
    CHANGES[what](play)
    assert not steady.again(play.ms)


def test_it_renews_the_session() -> None:
    """A member lives on repeated heartbeats alone, and expires without them."""
    play = play_of()
    kept = [steady_of(play, member_id) for member_id in ("a", "b")]
    for _ in range(10):
        play.wait(40_000)
        assert all(steady is not None and steady.again(play.ms) for steady in kept)
    assert set(play.group.members) == {"a", "b"}
    play.wait(46_000)
    assert not play.group.members


def test_a_member_on_its_way_is_not_steady(play: Play) -> None:
    """Whoever waits for partitions, gives some up or is away may hear something else next time."""
    play.join("a", instance_id="i")
    assert steady_of(play) is not None
    play.join("b")
    assert steady_of(play, "b") is None
    assert steady_of(play) is None
    play.beat("a", 2)
    assert play.group.members["a"].revoking
    assert steady_of(play) is None
    play.beat("a", 2, {"t": [0, 1]})
    play.beat("a", -2, instance_id="i")
    assert steady_of(play) is None
    assert play.coordinator.steady("nope", "a", play.now()) is None


def test_regular_expressions_are_resolved_anew_in_time() -> None:
    """A heartbeat is handled when the expression is due for another search, and while its topics are not known."""
    play = Play(group_consumer_regex_refresh_interval_ms=60_000, group_consumer_session_timeout_ms=600_000)
    play.join("a", regex="t.*")
    assert steady_of(play) is None
    play.resolve(**{"t.*": ["t"]})
    for _ in range(2):
        play.beat("a", play.group.members["a"].epoch)
    steady = steady_of(play)
    assert steady is not None
    play.wait(59_000)
    assert steady.again(play.ms)
    play.wait(1_001)
    assert not steady.again(play.ms)
    play.beat("a", play.group.generation)
    assert play.asked
    assert steady_of(play) is None


def test_sessions_have_the_timer_that_heartbeats_leave_alone() -> None:
    """The timer of a member that only repeats heartbeats stays armed."""
    play = play_of()
    steady = steady_of(play)
    assert steady is not None
    play.wait(1_000)
    assert steady.again(play.ms)
    assert play.group.sessions["a"].timer_at_ms != NEVER
