"""The clients written in Go: franz-go and sarama, in one program that is built once for a run of the tests."""

from __future__ import annotations

import functools
from pathlib import Path

from tests.interop.client import CLASSIC_ONLY, Ability, Client, build_folder, run_build

FOLDER = Path(__file__).parent


@functools.cache
def worker() -> str:
    """The program, built from go.mod and go.sum as they are."""
    with build_folder("go") as folder:
        run_build(["go", "build", "-mod=readonly", "-o", str(folder / "new"), "."], FOLDER)
        return str((folder / "new").rename(folder / "worker"))


CLIENTS = (
    Client(
        "franz-go",
        lambda: (worker(), "franz-go"),
        ("go",),
        cannot={
            Ability.AWAY: "it leaves out its instance id, so the server refuses to know",
            Ability.ROLL: "it always names one, and the first vote makes another target, as in Kafka 4.4",
        },
    ),
    Client("sarama", lambda: (worker(), "sarama"), ("go",), cannot={Ability.CONSUMER_PROTOCOL: CLASSIC_ONLY}),
)
