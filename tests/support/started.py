"""Objects that a test has for a block: `with Thing() as thing`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, Self


class Closes(ABC):
    """It is there before its block begins, and closed where the block ends."""

    @abstractmethod
    def close(self) -> None:
        """End it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Started(Closes):
    """It is started where its block begins. A start that fails is followed by `close` too."""

    @abstractmethod
    def start(self) -> Any:
        """Start it."""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self
