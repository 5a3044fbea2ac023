"""What a test starts for a block: `with Thing() as thing`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, Self


class Started(ABC):
    """It is started where its block begins, and closed where it ends, also if the start fails."""

    @abstractmethod
    def start(self) -> Any:
        """Start it."""

    @abstractmethod
    def close(self) -> None:
        """End it, whether it has started or not."""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
