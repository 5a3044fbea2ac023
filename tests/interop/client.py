"""Defines a client under test, in whatever language it is written.

A client is its worker: a program that speaks the JSON lines of worker.py. This module has its command, the programs
that it needs, and the abilities that the client lacks, with the reason. The worker reports its version (`started`).

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
    """Abilities that some clients lack."""

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
    CONSUMER_PROTOCOL = "speaks the consumer protocol"
    AWAY = "says that it will be back, when it closes with an instance id"
    PATTERN = "lets the server resolve a regular expression"
    GROW = "goes on when its topic gets more partitions"
    ROLL = "changes to the consumer protocol without a vote for an assignor"


OF_THE_CONSUMER_PROTOCOL = frozenset(
    {Ability.CONSUMER_PROTOCOL, Ability.AWAY, Ability.PATTERN, Ability.GROW, Ability.ROLL}
)
"""Abilities that only scenarios of the consumer protocol (KIP-848) need."""


CLASSIC_ONLY = "it speaks the classic protocol alone"


@dataclass(frozen=True, slots=True)
class Client:
    """The command of a client, and the abilities that it lacks.

    name: as in the table and in the names of tests.
    command: its worker's command line, to which the settings are added. It is called in the root of the project before
        each worker starts; it builds the worker once, and raises if that fails.
    programs: its toolchain, which must be in PATH.
    cannot: abilities that it lacks, each with the reason in a few words.
    joins_twice: it may rebalance once more than necessary (see worker_kafka_python.py).
    """

    name: str
    command: Callable[[], Sequence[str]]
    programs: tuple[str, ...] = ()
    cannot: Mapping[Ability, str] = field(default_factory=dict)
    joins_twice: bool = False

    @property
    def missing(self) -> str | None:
        """Return None if its toolchain is here, or one line with the missing programs."""
        absent = [program for program in self.programs if shutil.which(program) is None]
        return f"{self.name} needs {' and '.join(absent)}, not found here" if absent else None


@contextmanager
def build_folder(name: str) -> Iterator[Path]:
    """Yield a folder for a client's build; only one process at a time builds in it."""
    folder = ROOT / "build" / "interop" / name
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


def run_build(command: Sequence[str], folder: Path) -> str:
    """Run a compiler or an installer and return what it printed; if it fails, its output is the error."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


def install_locked(source: Path, folder: Path) -> bool:
    """Install the npm packages that a lock in `source` names into `folder`; return whether they weren't there yet."""
    stamp, lock = folder / "installed", (source / "package-lock.json").read_bytes()
    if stamp.exists() and stamp.read_bytes() == lock:
        return False
    for name in ("package.json", "package-lock.json"):
        shutil.copy(source / name, folder)
    run_build(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], folder)
    stamp.write_bytes(lock)
    return True
