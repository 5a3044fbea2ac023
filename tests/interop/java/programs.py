"""The Java programs beside this file: compiled once for a folder of jars, then run as processes.

A program is one source file without a package. It is compiled against the jars that it will run with, so one source
serves several releases. The classes are kept in build/oracle beside the jars, in a folder named for the source and the
jars. A program that many tests start can be trained: the classes that a first run loads are put into an archive
there, and a process is up after half the time (class data sharing; a JVM that can't use the archive does without).

House rule: a JVM here is small, with the serial collector and the quick compiler.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.support.apache import BUILD, JVM_FLAGS, TOOL_LOG4J

FOLDER = Path(__file__).parent
TRAINED_WITHIN_S = 60.0


class DoesNotCompile(Exception):
    """Holds the output of javac."""


class Training(NamedTuple):
    """A run whose classes are archived: its arguments, and a line for its standard input. It has to end by itself."""

    arguments: Sequence[str]
    line: str


def command(
    program: str, jars: Path, *, heap: str = "-Xmx128m", flags: Sequence[str] = (), training: Training | None = None
) -> list[str]:
    """How to run a program with these jars; its own arguments come behind. It is compiled when that isn't done yet."""
    built = _built(program, jars, training)
    archive = [f"-XX:SharedArchiveFile={built / 'classes.jsa'}"] if training is not None else []
    return _java(program, built, jars, heap, *archive, *flags)


@functools.cache
def _built(program: str, jars: Path, training: Training | None) -> Path:
    source = FOLDER / f"{program}.java"
    made_of = hashlib.sha256(source.read_bytes() + Path(__file__).read_bytes() + jars.name.encode()).hexdigest()
    folder = BUILD / f"{program}-{made_of[:12]}"
    with (BUILD / "compile.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=BUILD) as temporary:
                _compile(source, jars, Path(temporary, "made"))
                Path(temporary, "made").rename(folder)
        # Where its class path is has to be known by now.
        if training is not None and not (folder / "classes.jsa").exists():
            _train(program, folder, jars, training)
    return folder


def _java(program: str, built: Path, jars: Path, heap: str, *flags: str) -> list[str]:
    log4j = f"-Dlog4j.configuration=file:{built / 'log4j.properties'}"
    # What the JVM says of itself goes to standard output, where only the program has something to say.
    own = (*JVM_FLAGS, "-Xms32m", heap, "-Xlog:disable", log4j, *flags)
    return ["java", *own, "-cp", f"{built / 'classes.jar'}:{jars}/*", program]


def _compile(source: Path, jars: Path, into: Path) -> None:
    classes = into / "classes"
    _run(
        *("javac", "-proc:none", "-Xlint:all,-path,-classfile", "-Werror"),
        *("-cp", f"{jars}/*", "-d", str(classes), str(source)),
    )
    _run("jar", "--create", "--file", str(into / "classes.jar"), "-C", str(classes), ".")
    (into / "log4j.properties").write_text(TOOL_LOG4J)


def _train(program: str, built: Path, jars: Path, training: Training) -> None:
    archive = f"-XX:ArchiveClassesAtExit={built / 'classes.jsa'}"
    with subprocess.Popen(
        [*_java(program, built, jars, "-Xmx128m", archive), *training.arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdin is not None
        process.stdin.write(training.line.encode() + b"\n")
        process.stdin.flush()  # and stays open: a worker whose parent is gone ends at once
        process.wait(TRAINED_WITHIN_S)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise DoesNotCompile(done.stderr or done.stdout)
