"""Signs of life: the commits of a member say from when on its silence is unusual."""

from __future__ import annotations

from coordinator.story.inference.signs import STEADY_TIMES, Sign

SESSION_MS = 10_000


def test_three_commits_make_a_member_steady() -> None:
    """The first two could be those of a program that commits now and then."""
    assert STEADY_TIMES == 3
    sign = Sign(0)
    for at_ms, is_steady in ((1_000, False), (2_000, False), (2_000, False), (3_000, True)):
        sign.note(at_ms, is_weak=False)
        assert sign.is_steady(SESSION_MS) is is_steady


def test_a_pause_of_half_a_session_is_usual_for_who_makes_it() -> None:
    """Then the member isn't steady, however often it commits."""
    for pause_ms, is_steady in ((SESSION_MS // 2, True), (SESSION_MS // 2 + 1, False)):
        sign = Sign(0)
        for number in range(1, 5):
            sign.note(number * pause_ms, is_weak=False)
        assert sign.is_steady(SESSION_MS) is is_steady
