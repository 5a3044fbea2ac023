"""The window keeps the newest items, within bounds for all, for each group and in time."""

from __future__ import annotations

from coordinator.site.newest import Bounds, Newest


def test_the_oldest_go_first() -> None:
    """Above the total, the oldest items go, whichever group has them."""
    window: Newest[int] = Newest(Bounds(3))
    gone = [window.add("ab"[number % 2], number, number) for number in range(5)]
    assert gone == [[], [], [], [0], [1]]
    assert list(window) == [2, 3, 4]
    window.clear()
    assert (len(window), list(window)) == (0, [])
    assert [window.add("a", number, number) for number in range(3)] == [[], [], []]


def test_a_noisy_group_pushes_out_its_own() -> None:
    """A group above its own bound loses its oldest items; other groups keep theirs."""
    window: Newest[str] = Newest(Bounds(100, of_group=2))
    window.add("quiet", 0, "quiet 0")
    gone = [window.add("noisy", number, f"noisy {number}") for number in range(4)]
    assert gone == [[], [], ["noisy 0"], ["noisy 1"]]
    assert list(window) == ["quiet 0", "noisy 2", "noisy 3"]


def test_what_is_too_old_goes() -> None:
    """An item goes once it is older than the newest by more than the bound, but the newest stays."""
    window: Newest[int] = Newest(Bounds(100, age_ms=10))
    assert window.add("a", 0, 0) == []
    assert window.add("b", 10, 10) == []
    assert window.add("c", 11, 11) == [0]
    assert window.add("d", 1_000, 1_000) == [10, 11]
    assert list(window) == [1_000]


def test_a_time_in_the_future_pushes_out_nothing() -> None:
    """A broker's clock may have been wrong for a moment: its events make no other one old."""
    window: Newest[str] = Newest(Bounds(100, age_ms=10), wall_ms=lambda: 12)
    window.add("a", 10, "first")
    assert window.add("b", 2**62, "wrong") == []
    assert window.add("a", 12, "last") == []
    assert list(window) == ["first", "wrong", "last"]
