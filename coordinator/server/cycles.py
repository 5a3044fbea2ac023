"""Python's garbage collector in a server: it frees reference cycles, and holds up no request for long.

Python's collector looks at new objects (`settle` says how often). The objects that it leaves are frozen: no later look
has them. So a `Round` looks at everything again, in steps that are short:

    hide     each object that is in use, found from the roots on, goes out of the collector's reach
    collect  the collector looks at the rest: cycles that nothing uses, and a few thousand objects of Python itself
    show     the hidden objects come back, and are frozen again

The collector frees objects only if nothing but each other refers to them, and a hidden object counts as something else.
So nothing that is in use can be freed, whatever the roots are and whatever happens between two steps. A cycle that is
hidden when its use ends waits for the next round.

House rule: a hidden object has a reference from its round until it is shown again. Python must not free it while it is
hidden, and must not be asked to show an object twice. Why it is so: docs/decisions/one-look-for-cycles.md.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import chain, filterfalse, islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coordinator.server.clock import Clock, Handle

GC_OBJECTS = 2_500
"""New objects between two looks of the garbage collector. A look stops all answers: with 20,000 new objects, which 700
joining members make, it takes 5 to 16 ms. More frequent looks cost no more CPU in total, as few objects stay in the
processor's cache."""

NEVER = 2**31 - 1
"""So many looks at new objects come before Python looks at older ones by itself."""

INCREMENTAL = (3, 14) <= sys.version_info < (3, 14, 5)
"""Whether this Python's garbage collector works in small steps, some of which look at no new objects."""

REFERENCES_AT_ONCE = 2_000
"""References that a step follows: about 0.7 ms."""

SEEN_AT_ONCE = 100
"""Objects whose references a step lists together."""

SHOWN_AT_ONCE = 3_000
"""Objects that a step shows: about 0.7 ms, or 2 ms if the collector frees them all."""

PARTS_MAX = 20
"""Looks in a round, at most: each also has what came meanwhile. If much is over, each takes longer."""

CHECK_MS = 1_000
"""How often a server asks whether a round is due. It is if there was a look since the last one."""

REST_MS, REST_MS_PER_STEP = 60_000, 80
"""The time between two rounds: a minute, or for a large server so long that rounds take 1 % of a processor."""

STEP_MS = 10
"""The time between two steps of a round: as long as the step took, and this at least if the round isn't urgent."""

GROWN_FACTOR, GROWN_BLOCKS = 3, 1_000_000
"""A round is urgent if Python's memory has this many times the blocks that it had behind the last one, and so many more
(some 80 MB).
"""

_hide = ctypes.PYFUNCTYPE(None, ctypes.py_object)(("PyObject_GC_UnTrack", ctypes.pythonapi))
_show = ctypes.PYFUNCTYPE(None, ctypes.py_object)(("PyObject_GC_Track", ctypes.pythonapi))


def settle() -> None:
    """The load is over: the collector skips what there is, and later whatever a look leaves."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_OBJECTS, NEVER, NEVER)
    if not INCREMENTAL and _keep not in gc.callbacks:
        gc.callbacks.append(_keep)


def _keep(phase: str, _info: dict[str, int]) -> None:
    """Let later looks skip all objects that this look left."""
    if phase == "stop":
        gc.freeze()


def drop_trace(error: BaseException | None) -> None:
    """Forget where an error was raised, once it is reported: a function there often refers to it, and so to itself."""
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__


class Round:
    """One look at everything. roots: objects from which those in use can be reached; the more, the less is left to see.

    found: how many objects were in use.
    """

    def __init__(self, roots: Iterable[object]) -> None:
        self.found = 0
        self._unseen = list(roots)
        self._hidden: list[object] = []
        self._rest: list[object] = []
        self._tuples: set[int] = set()
        # They get long, and each look would go through them.
        _for_each(_hide, (self._unseen, self._hidden, self._rest, self._tuples))

    def steps(self) -> Generator[None, None, None]:
        """Do the round; yields behind each step. If it is closed before its end, nothing stays hidden."""
        keeps = _keep in gc.callbacks
        if keeps:
            gc.callbacks.remove(_keep)  # what is new stays apart from what a look froze
        try:
            gc.freeze()
            yield from self._hide_used()
            yield from self._collect()
            while self._hidden:
                _show_some(self._hidden)
                gc.freeze()
                yield
        finally:
            while self._hidden or self._rest:
                _show_some(self._hidden or self._rest)
            gc.freeze()
            self._unseen.clear()
            self._tuples.clear()
            if keeps:
                gc.callbacks.append(_keep)

    def _hide_used(self) -> Generator[None, None, None]:
        references: Iterator[object] = iter(())
        while self._unseen:
            left = REFERENCES_AT_ONCE
            while left > 0:
                some = list(islice(references, left))
                if some:
                    self._hide_some(some)
                elif self._unseen:
                    references = chain.from_iterable(map(gc.get_referents, self._unseen[-SEEN_AT_ONCE:]))
                    del self._unseen[-SEEN_AT_ONCE:]
                else:
                    return
                left -= len(some) or 1
            yield

    def _hide_some(self, some: list[object]) -> None:
        """Hide those of some objects that are not hidden; but only note tuples.

        The collector would take a dict with nothing but hidden tuples for one without references, and skip it for ever.
        """
        # One object may be there often: each object refers to its class.
        found = {id(each): each for each in filter(gc.is_tracked, some)}
        used = [each for number, each in found.items() if number not in self._tuples]
        hidden = [each for each in used if type(each) is not tuple]
        self._tuples.update(id(each) for each in used if type(each) is tuple)
        self._unseen += used
        self._hidden += hidden
        self.found += len(used)
        _for_each(_hide, hidden)

    def _collect(self) -> Generator[None, None, None]:
        """Have the collector look at the rest, a part at a time, together with what it left of the parts before.

        So a step is short even if much is over, and each cycle is whole in the end.
        """
        gc.unfreeze()
        old = gc.get_objects(generation=2)  # nothing that is newer than the round
        while old:
            some = [each for each in old[-SHOWN_AT_ONCE:] if id(each) not in self._tuples]
            del old[-SHOWN_AT_ONCE:]
            self._rest += some
            _for_each(_hide, [each for each in some if type(each) is not tuple])
            del some
            yield
        gc.freeze()  # the tuples, and what is new
        part, seen = max(SHOWN_AT_ONCE, len(self._rest) // PARTS_MAX), 0
        while self._rest:
            # As many as were left before: so a large cycle is looked at about twice until it is whole.
            seen += _show_some(self._rest, max(part, seen))
            seen = max(0, seen - gc.collect())
            yield


def _show_some(hidden: list[object], size: int = SHOWN_AT_ONCE) -> int:
    """Show the last ones; returns how many."""
    some = hidden[-size:]
    _for_each(_hide, [each for each in some if type(each) is tuple])  # takes them from the frozen ones
    _show_all(some)
    del hidden[-size:]
    return len(some)


def _show_all(hidden: Iterable[object]) -> None:
    """Show objects, except those that are not hidden: a dict comes back by itself when something is put into it."""
    _for_each(_show, filterfalse(gc.is_tracked, hidden))


def _for_each(do: Callable[[object], None], objects: Iterable[object]) -> None:
    """Do it for each object, while no other thread and no look of the collector comes between."""
    is_enabled = gc.isenabled()
    gc.disable()
    try:
        deque(map(do, objects), maxlen=0)  # runs no Python code, so this thread keeps Python's lock
    finally:
        if is_enabled:
            gc.enable()


class Rounds:
    """Begins a round when one is due, and does its steps between the other work of the loop. roots: as of Round."""

    def __init__(self, clock: Clock, roots: Iterable[object]) -> None:
        self._clock = clock
        self._roots = list(roots)
        self._steps = Round(()).steps()
        self._steps_done = 0
        self._pause_ms = STEP_MS
        self._looks, self._blocks = _looks(), sys.getallocatedblocks()
        self._due_ms = clock.ms() + REST_MS
        self._handle: Handle = clock.call_at(clock.ms() + CHECK_MS, self._check)

    def end(self) -> None:
        """End a round that is under way, and begin no other."""
        self._handle.cancel()
        self._steps.close()

    def _check(self) -> None:
        looks = _looks()
        is_urgent = sys.getallocatedblocks() > max(GROWN_FACTOR * self._blocks, self._blocks + GROWN_BLOCKS)
        is_due = is_urgent or self._clock.ms() >= self._due_ms
        if is_due and looks > self._looks and _keep in gc.callbacks:
            self._looks = looks
            self._steps, self._steps_done = Round(self._roots).steps(), 0
            self._pause_ms = 0 if is_urgent else STEP_MS
            self._go_on()
        else:
            self._after(CHECK_MS, self._check)

    def _go_on(self) -> None:
        began_ms = self._clock.ms()
        for _ in self._steps:
            self._steps_done += 1
            self._after(max(self._pause_ms, self._clock.ms() - began_ms), self._go_on)
            return
        self._blocks = sys.getallocatedblocks()
        self._due_ms = self._clock.ms() + max(REST_MS, self._steps_done * REST_MS_PER_STEP)
        self._after(CHECK_MS, self._check)

    def _after(self, wait_ms: int, callback: Callable[[], None]) -> None:
        self._handle = self._clock.call_at(self._clock.ms() + wait_ms, callback)


def _looks() -> int:
    """How often the collector has looked at new objects so far."""
    return int(gc.get_stats()[0]["collections"])
