"""Python's garbage collector in a server: it frees reference cycles, and holds up no request for long.

House rule: nothing of the server refers to itself when it is over. Why: docs/decisions/one-look-for-cycles.md.
"""

from __future__ import annotations

import gc
import sys

GC_OBJECTS = 2_500
"""New objects between two looks of the garbage collector. A look stops all answers: with 20,000 new objects, which 700
joining members make, it takes 5 to 16 ms. More frequent looks cost no more CPU in total, as few objects stay in the
processor's cache."""

INCREMENTAL = (3, 14) <= sys.version_info < (3, 14, 5)
"""Whether this Python's garbage collector works in small steps, some of which look at no new objects."""


def settle() -> None:
    """The load is over: the collector skips what there is, and later whatever a look leaves."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_OBJECTS)
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
