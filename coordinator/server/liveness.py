"""Which workers still answer: the supervisor asks each of them now and then, and learns who is silent for too long.

A worker may hang without an end: it is stopped, it waits for a dead disk, or it loops. Then nobody serves its groups.
The supervisor asks each worker four times within the timeout. A worker that is silent for half of the timeout is
`silent`: FindCoordinator answers COORDINATOR_NOT_AVAILABLE for its groups. A worker that is silent for all of it is
`hung`: the supervisor ends it.

When the supervisor itself stood still, as on a machine that slept, silence says nothing: each worker gets the whole
timeout again.

House rule: pure. Times come in as arguments, and the caller sends and ends.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

W = TypeVar("W", bound=Hashable)

QUESTIONS = 4
"""Questions within the timeout."""


@dataclass(slots=True)
class _State:
    """heard_ms: when the worker said something last. ask_ms: when to ask it next."""

    heard_ms: int
    ask_ms: int
    is_silent: bool = False


class Look(NamedTuple, Generic[W]):
    """The result of a look at all workers. ask: to be asked now. silent: since this look. hung: to be ended, once."""

    ask: list[W]
    silent: list[W]
    hung: list[W]


class Liveness(Generic[W]):
    """See the module. timeout_ms: a worker that is silent for longer hangs."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._pause_ms = max(timeout_ms // QUESTIONS, 1)
        self._states: dict[W, _State] = {}
        self._looked_ms: int | None = None

    def watch(self, worker: W, now_ms: int) -> None:
        """Watch a worker from now on."""
        self._states[worker] = _State(now_ms, now_ms)

    def forget(self, worker: W) -> None:
        """The worker has ended."""
        self._states.pop(worker, None)

    def hear(self, worker: W, now_ms: int) -> bool:
        """The worker said something. Returns whether it was silent before."""
        state = self._states.get(worker)
        if state is None:
            return False
        was_silent, state.is_silent, state.heard_ms = state.is_silent, False, now_ms
        return was_silent

    def due_ms(self) -> int | None:
        """When to look next; None if no worker is watched."""
        return min((state.ask_ms for state in self._states.values()), default=None)

    def look(self, now_ms: int) -> Look[W]:
        """Look at all workers."""
        found: Look[W] = Look([], [], [])
        looked_ms, self._looked_ms = self._looked_ms, now_ms
        stood_still = looked_ms is not None and now_ms - looked_ms > self._timeout_ms // 2
        for worker, state in list(self._states.items()):
            if stood_still:
                state.heard_ms = now_ms
            if now_ms - state.heard_ms >= self._timeout_ms:
                found.hung.append(worker)
                self.forget(worker)
                continue
            if now_ms - state.heard_ms >= self._timeout_ms // 2 and not state.is_silent:
                state.is_silent = True
                found.silent.append(worker)
            if now_ms >= state.ask_ms:
                state.ask_ms = now_ms + self._pause_ms
                found.ask.append(worker)
        return found
