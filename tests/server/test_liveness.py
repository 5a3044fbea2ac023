"""Which workers still answer: asked in time, silent after half of the timeout, hung after all of it."""

from __future__ import annotations

from coordinator.server.liveness import Liveness, Look

TIMEOUT_MS = 1_000


def watched(*workers: str) -> Liveness[str]:
    """Workers that are watched from time 0 on."""
    liveness: Liveness[str] = Liveness(TIMEOUT_MS)
    for worker in workers:
        liveness.watch(worker, 0)
    return liveness


def test_a_worker_that_answers_is_asked_again_and_again() -> None:
    """It is never silent, and never ended."""
    liveness = watched("a")
    for now_ms in range(0, 10_000, 250):
        assert liveness.due_ms() == now_ms
        assert liveness.look(now_ms) == Look(["a"], [], [])
        assert not liveness.hear("a", now_ms + 10)


def test_a_worker_without_answers_is_silent_and_then_hung() -> None:
    """Each is reported once; another worker that answers is not touched."""
    liveness = watched("a", "b")
    found = []
    for now_ms in range(0, 3_000, 250):
        look = liveness.look(now_ms)
        found += [("silent", now_ms, each) for each in look.silent] + [("hung", now_ms, each) for each in look.hung]
        liveness.hear("b", now_ms)
    assert found == [("silent", 500, "a"), ("hung", 1_000, "a")]


def test_a_silent_worker_that_answers_is_no_longer_silent() -> None:
    """`hear` says that it was silent, once."""
    liveness = watched("a")
    for now_ms in (0, 250, 500):
        liveness.look(now_ms)
    assert liveness.hear("a", 600)
    assert not liveness.hear("a", 601)
    assert liveness.look(750).silent == []


def test_a_supervisor_that_stood_still_ends_nobody() -> None:
    """After a machine slept, each worker has the whole timeout anew."""
    liveness = watched("a")
    liveness.look(0)
    assert liveness.look(60_000) == Look(["a"], [], [])
    assert liveness.look(60_250).hung == []


def test_nothing_is_due_without_workers() -> None:
    """A worker that ended is forgotten."""
    liveness = watched("a")
    liveness.forget("a")
    assert liveness.due_ms() is None
    assert not liveness.hear("a", 1)
    assert liveness.look(10_000) == Look([], [], [])
