"""The objects that a piece of work leaves behind in reference cycles."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def left() -> Iterator[Counter[str]]:
    """Count the objects that only a look of Python's garbage collector could free, by kind. Filled at the end.

    What is made once, such as modules and codecs, has to be there before. The collector never looks at that again: a
    look at all objects of the tests takes longer than most work.
    """
    found: Counter[str] = Counter()
    gc.collect()
    gc.freeze()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield found
        gc.collect()
        found.update(map(_kind, gc.garbage))
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def _kind(each: object) -> str:
    """The kind of an object; of a function or a coroutine its own name."""
    named = each if hasattr(each, "__qualname__") else type(each)
    return f"{getattr(named, '__module__', '')}.{getattr(named, '__qualname__', '')}"
