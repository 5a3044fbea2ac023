"""What a client under test is, whatever language it is written in.

A client is its worker: a program that speaks the JSON lines of worker.py. Here stands how it is started, which programs
that takes, and what the client has no way to do, with the reason; which version runs the worker says (`started`).

House rule: a reason in `cannot` is about the client; a test shows it on Apache Kafka too.
"""

from __future__ import annotations

import enum
import fcntl
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Ability(enum.Enum):
    """What not every client can do."""

    STATIC = "joins with an instance id"
    STAY = "closes without leaving the group, when it has an instance id"
    FENCE = "hears FENCED_INSTANCE_ID"
    RANGE = "assigns by range, under Kafka's name for it"
    COOPERATIVE = "rebalances cooperatively"
    COMMIT = "commits offsets that it is told"
    METADATA = "sends and reads metadata with an offset"
    BEYOND = "leaves a committed offset beyond the topic's end as it is"
    OUTLIVE = "goes on when its only server is gone for a while"
    WAIT = "is started while no server answers, and waits for one"
    HEADERS = "produces headers and null values"


@dataclass(frozen=True, slots=True)
class Client:
    """How a client is run, and what it can't do.

    name: as in the table and in the names of tests.
    command: its worker's command line, to which the settings are added; called in the root of the project, before the
        first worker starts and again for each: it builds what there is to build, once. Raises when that fails.
    programs: what has to be in PATH for it; they are its toolchain.
    cannot: abilities that it lacks, each with the reason in a few words.
    joins_twice: it may rebalance once more than there is reason to (see worker_kafka_python.py).
    """

    name: str
    command: Callable[[], Sequence[str]]
    programs: tuple[str, ...] = ()
    cannot: Mapping[Ability, str] = field(default_factory=dict)
    joins_twice: bool = False

    @property
    def missing(self) -> str | None:
        """None if its toolchain is here, or one line that names what isn't."""
        absent = [program for program in self.programs if shutil.which(program) is None]
        return f"{self.name} needs {' and '.join(absent)}, not found here" if absent else None


@contextmanager
def build_folder(name: str) -> Iterator[Path]:
    """A folder for what a client's worker is built of, and the right to build in it: one process at a time has it."""
    folder = ROOT / "build" / "interop" / name
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


def run_build(command: Sequence[str], folder: Path) -> None:
    """Run a compiler or an installer; what it said is the error when it fails."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
