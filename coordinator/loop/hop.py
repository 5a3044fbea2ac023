"""The type of a function that takes calls from another thread to the loop's.

The arguments come apart from the function, because mypy compares them with it. It doesn't look into a partial: so a
callback that hops is a lambda.

House rule: nothing runs here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVarTuple

Arguments = TypeVarTuple("Arguments")


class Hop(Protocol):
    """See the module. asyncio's `call_soon_threadsafe` is one."""

    def __call__(self, function: Callable[[*Arguments], object], /, *arguments: *Arguments) -> object:
        """Have the loop's thread call `function`. Any thread may call this."""
