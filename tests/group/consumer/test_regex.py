"""Subscriptions by regular expression."""

from __future__ import annotations

from tests.group.consumer.play import Play, given


def test_resolution_bumps_without_a_heartbeat() -> None:
    """The first answer comes before the resolution, with nothing; the resolution then bumps the group."""
    play = Play({"t1": 1, "t2": 1})
    first = play.join("a", regex="t.*")
    assert (first.member_epoch, given(first)) == (1, {})
    play.resolve(**{"t.*": ["t1", "t2"]})
    assert (play.group.generation, play.state()) == (2, "Assigning")
    assert given(play.beat("a", 1)) == {"t1": [0], "t2": [0]}


def test_known_regex_is_used_at_once() -> None:
    """A second member with the same expression bumps at once and asks for no resolution."""
    play = Play({"t1": 2})
    play.join("a", regex="t.*")
    play.resolve(**{"t.*": ["t1"]})
    play.beat("a", 1)
    play.join("b", regex="t.*")
    assert (play.group.generation, play.asked) == (3, [])


def test_topic_that_comes_later_is_found() -> None:
    """A new topic makes the next heartbeat ask again, once ten seconds have passed since the last resolution."""
    play = Play({"t1": 1})
    play.join("a", regex="t.*")
    play.resolve(**{"t.*": ["t1"]})
    play.beat("a", 1)
    play.set_topics(t2=1)
    play.beat("a", 2)
    assert not play.asked
    play.wait(10_001)
    play.beat("a", 2)
    play.resolve(**{"t.*": ["t1", "t2"]})
    assert given(play.beat("a", 2)) == {"t1": [0], "t2": [0]}


def test_names_and_regex_add_up() -> None:
    """Names do not replace an expression; each lasts until it is sent empty, and loses its topics at once."""
    play = Play({"t1": 1, "u": 1})
    play.join("a", ["u"], regex="t.*")
    play.resolve(**{"t.*": ["t1"]})
    assert given(play.beat("a", 2)) == {"t1": [0], "u": [0]}
    told = play.beat("a", 3, {"t1": [0], "u": [0]}, regex="")
    assert given(told) == {"u": [0]}
    assert not play.group.regexes


def test_one_resolution_at_a_time() -> None:
    """While one is under way no other is asked for."""
    play = Play({"t1": 1})
    play.join("a", regex="t.*")
    play.join("b", regex="u.*")
    assert len(play.asked) == 1
