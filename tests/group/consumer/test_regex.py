"""Subscriptions by regular expression."""

from __future__ import annotations

from coordinator.group.consumer.regex import REGEXES_MAX
from schemas.errors import ErrorCode
from tests.group.consumer.play import Play, given


def test_topic_that_comes_later_is_found() -> None:
    """A new topic makes the next heartbeat ask again, once ten seconds have passed since the last resolution."""
    play = Play({"t1": 1})
    play.join("a", regex="t.*")
    play.resolve(**{"t.*": ["t1"]})
    play.beat("a", 1)
    play.set_topics(t2=1)
    play.beat("a", 2)
    play.wait(10_000)
    play.beat("a", 2)
    assert not play.asked
    play.wait(1)
    play.beat("a", 2)
    play.resolve(**{"t.*": ["t1", "t2"]})
    assert given(play.beat("a", 2)) == {"t1": [0], "t2": [0]}


def test_topic_that_comes_after_a_restart_is_found() -> None:
    """The version of topics in a record counts for nothing: a server starts to count anew, and Kafka counts higher."""
    play = Play({"t1": 1})
    for number in range(5):
        play.set_topics(**{f"u{number}": 1})
    play.join("a", regex="t.*")
    play.resolve(**{"t.*": ["t1"]})
    play.beat("a", 1)
    play.version = 0
    play.restart()
    play.set_topics(t2=1)
    play.wait(10_001)
    play.beat("a", 2)
    play.resolve(**{"t.*": ["t1", "t2"]})
    assert given(play.beat("a", 2)) == {"t1": [0], "t2": [0]}


def test_expressions_of_a_group_are_limited() -> None:
    """One more is refused and changes nothing; one that others have, or that replaces a member's own, is taken."""
    play = Play({"t1": 1})
    for number in range(REGEXES_MAX):
        assert not play.join(f"m{number}", regex=f"t{number}").error_code
    assert play.join("one more", regex="u").error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert "one more" not in play.group.members
    assert not play.join("one more", regex="t0").error_code
    assert not play.beat("m1", 1, regex="u").error_code
    assert play.beat("m0", 1, regex="v").error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_one_resolution_at_a_time() -> None:
    """While one is under way no other is asked for."""
    play = Play({"t1": 1})
    play.join("a", regex="t.*")
    play.join("b", regex="u.*")
    assert len(play.asked) == 1


def test_an_expression_stays_as_long_as_a_member_has_it() -> None:
    """Of two members with one expression, the first that drops it takes nothing from the other. The last one does."""
    play = Play({"t1": 2, "u1": 1})
    play.join("a", regex="t.*")
    play.resolve(**{"t.*": ["t1"]})
    play.join("b", regex="t.*")
    assert not play.beat("a", 1, regex="").error_code
    assert set(play.group.regexes) == {"t.*"}
    assert given(play.beat("b", 3)) == {"t1": [0, 1]}
    play.wait(10_001)
    play.beat("b", 4, {"t1": [0, 1]}, regex="u.*")
    assert play.asked[0].regexes == {"u.*"}
    assert not play.group.regexes


def test_the_topics_of_an_expression_that_nobody_has_any_more_are_not_kept() -> None:
    """Its member left while the resolution was under way."""
    play = Play({"t1": 1, "u1": 1})
    play.join("a", regex="t.*")
    play.join("b", regex="u.*")
    play.resolve(**{"t.*": ["t1"]})
    play.wait(10_001)
    play.beat("a", 1)
    assert play.asked[-1].regexes == {"t.*", "u.*"}
    play.leave("b")
    play.resolve(**{"t.*": ["t1"], "u.*": ["u1"]})
    assert play.group.regexes.keys() == {"t.*"}


def test_a_resolution_is_for_all_expressions_of_the_group() -> None:
    """Those that a member has once the sender has its new one. None is asked for if they are resolved already."""
    play = Play({"t1": 1})
    for name, regex in (("a", "t.*"), ("b", "t.*"), ("c", "u.*")):
        play.join(name, regex=regex)
    play.resolve(**{"t.*": ["t1"]})
    asked = []
    for name, regex in (("c", "t.*"), ("a", "v.*"), ("b", "v.*"), ("c", "v.*"), ("b", "")):
        play.wait(10_001)
        play.beat(name, play.group.members[name].epoch, regex=regex)
        asked.append({regex for each in play.asked for regex in each.regexes})
        if play.asked:
            play.resolve()
    assert asked == [set(), {"t.*", "v.*"}, set(), {"v.*"}, set()]
