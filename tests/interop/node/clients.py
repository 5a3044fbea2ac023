"""The clients written in JavaScript: kafkajs and @platformatic/kafka, installed once for a run of the tests.

@platformatic/kafka 2 needs a Node.js that most machines don't have yet, so it is 1.
"""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.interop.client import CLASSIC_ONLY, Ability, Client, build_folder, install_locked

FOLDER = Path(__file__).parent
PROGRAMS = ("node", "npm")
ROUND_ROBIN = "its only assignor is round robin"


@functools.cache
def installed() -> Path:
    """A folder with the workers and, as locked, the packages that they import."""
    with build_folder("node") as folder:
        install_locked(FOLDER, folder)
        for source in FOLDER.glob("*.js"):
            target = folder / source.name
            if not target.exists() or target.read_bytes() != source.read_bytes():  # another run may read it just now
                shutil.copy(source, target)
        return folder


def worker(name: str) -> Callable[[], Sequence[str]]:
    """The command of a worker."""
    return lambda: ("node", str(installed() / f"{name}.js"))


CLIENTS = (
    Client(
        "kafkajs",
        worker("kafkajs"),
        PROGRAMS,
        cannot={
            Ability.STATIC: "it has no instance ids",
            Ability.FENCE: "it has no instance ids",
            Ability.RANGE: ROUND_ROBIN,
            Ability.COOPERATIVE: ROUND_ROBIN,
            Ability.BEYOND: "it commits -2 over an offset that is beyond the topic's end",
            Ability.CONSUMER_PROTOCOL: CLASSIC_ONLY,
        },
    ),
    Client(
        "platformatic-kafka",
        worker("platformatic"),
        PROGRAMS,
        cannot={
            Ability.RANGE: ROUND_ROBIN,
            Ability.COOPERATIVE: ROUND_ROBIN,
            Ability.METADATA: "its commits carry no metadata",
            Ability.FENCE: "its commits carry no instance id: it hears UNKNOWN_MEMBER_ID and takes the seat back",
            Ability.BEYOND: "its stream ends with OFFSET_OUT_OF_RANGE",
            Ability.STAY: "it leaves its group when it closes, with an instance id too",
            Ability.AWAY: "it leaves for good when it closes, with an instance id too",
            Ability.PATTERN: "it subscribes to names only",
            Ability.GROW: "its stream ends: it looks a new partition up in metadata that it read earlier",
        },
    ),
)
