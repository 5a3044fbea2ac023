"""The clients written in Go: franz-go and sarama, in one program that is built once for a run of the tests."""

from __future__ import annotations

import functools
from pathlib import Path

from tests.interop.client import Client, build_folder, run_build

FOLDER = Path(__file__).parent


@functools.cache
def worker() -> str:
    """The program, built from go.mod and go.sum as they are."""
    with build_folder("go") as folder:
        run_build(["go", "build", "-mod=readonly", "-o", str(folder / "new"), "."], FOLDER)
        return str((folder / "new").rename(folder / "worker"))


CLIENTS = tuple(
    Client(name, lambda name=name: (worker(), name), programs=("go",))  # type: ignore[misc]
    for name in ("franz-go", "sarama")
)
