"""The servers under comparison, each a process of its own on 127.0.0.1.

`Echo` and `Tenure` start anew for every measurement, so that no measurement influences the next. Apache Kafka, with the
flags of its own start script, serves many of them, since it takes seconds to start and more until its code is compiled.

House rule: this module ends only processes that it started.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks import entry
from benchmarks.meter import children, listens
from benchmarks.questions import prepare, until_joined
from tests.support.apache import VERSION, ApacheKafka
from tests.support.ports import reserved_port

ROOT = Path(__file__).parent.parent
STOPPED_WITHIN_S = 15.0

SETTINGS = {"group.initial.rebalance.delay.ms": "0"}
KAFKA_SETTINGS = {**SETTINGS, "offsets.topic.num.partitions": "50"}

# The flags of kafka-server-start.sh and kafka-run-class.sh.
JVM_FLAGS = (
    "-Xms1G",
    "-Xmx1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
)


class Running(NamedTuple):
    """A running server.

    folder: its log's folder, if it has one. start_s: from exec to the answer to its first JoinGroup; 0 if not measured.
    workers: the processes below its own that are part of it. http: HOST:PORT of its metrics, if it has any.
    ports: of each of `entry.LISTENERS`, if it is secured.
    """

    name: str
    port: int
    pid: int
    folder: str | None = None
    start_s: float = 0.0
    workers: tuple[int, ...] = ()
    http: str = ""
    ports: Mapping[str, int] = {}


@contextmanager
def pinned(cpus: set[int]) -> Iterator[None]:
    """Run processes that are started meanwhile on these CPUs."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def given(name: str) -> Running:
    """Return a server that runs already on this machine: 127.0.0.1:PORT:PID. Raises ValueError with the reason."""
    _, port, pid = name.split(":")
    try:
        found = listens(int(pid), int(port))
    except OSError as error:
        raise ValueError(f"process {pid} can't be looked at: {error.strerror}") from None
    if not found:
        raise ValueError(f"process {pid} doesn't take connections on port {port}")
    return Running(name, int(port), int(pid))


@contextmanager
def echo(answer: bytes, cpus: set[int], identity: Path | None = None) -> Iterator[Running]:
    """Run the echo server; see `benchmarks.echo`. identity: private key and certificate, for TLS."""
    command = [sys.executable, "-m", "benchmarks.echo", answer.hex(), *([] if identity is None else [str(identity)])]
    with pinned(cpus):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        port = int(_ready(process).split()[1])
        yield Running("echo", port, process.pid, ports=dict.fromkeys(entry.LISTENERS, port))
    finally:
        process.kill()
        process.communicate()


@contextmanager
def tenure(
    settings: Mapping[str, str],
    cpus: set[int],
    *,
    hangs: bool = False,
    is_slow: bool = False,
    program: Path | None = None,
    identity: Path | None = None,
) -> Iterator[Running]:
    """Run Tenure from this tree, with its default logging, to a file.

    hangs: the disk of its events hangs. is_slow: each sync of its disk takes 2 ms longer. program: another version's
    `tenure`. identity: private key and certificate; with them it has all of `entry.LISTENERS`.
    """
    prepare()
    folder = Path(tempfile.mkdtemp(prefix="tenure-bench-"))
    command = [str(program or Path(sys.executable).parent / "tenure")]
    if hangs or is_slow:
        command = [sys.executable, "-m", "tests.support.hanging" if hangs else "benchmarks.slow"]
    command += ["serve", "--data-dir", str(folder / "data")]
    command += ["--listen", "127.0.0.1:0"] if identity is None else []
    for name, value in {**SETTINGS, **_secured(identity), **settings}.items():
        command += ["--set", f"{name}={value}"]
    with (folder / "log").open("w") as log, pinned(cpus):
        began = time.perf_counter()
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, "PYTHONPATH": "" if program else str(ROOT)},
        )
    try:
        line = _ready(process)
        if not line.startswith("ready "):
            raise ChildProcessError((folder / "log").read_text())
        ports = [int(address.rpartition(":")[2]) for address in line.split()[1].removeprefix("listen=").split(",")]
        port = ports[0]
        until_joined(port)
        start_s = time.perf_counter() - began
        if identity is not None:
            entry.add_user(port)
        shown = re.search(r"HTTP: http://(\S+)/", (folder / "log").read_text())
        if "tenure.http" in settings and not shown:
            raise ChildProcessError("its log doesn't say where its HTTP is")
        yield Running(
            "tenure",
            port,
            process.pid,
            str(folder / "data"),
            start_s,
            tuple(children(process.pid)),
            shown[1] if shown else "",
            dict(zip(entry.LISTENERS, ports, strict=False)),
        )
    finally:
        (process.kill if hangs else process.terminate)()
        try:
            process.wait(STOPPED_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
        process.communicate()
        shutil.rmtree(folder, ignore_errors=True)


def _secured(identity: Path | None) -> dict[str, str]:
    """Return the settings of Tenure's listeners, if it is secured."""
    if identity is None:
        return {}
    return {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in entry.LISTENERS),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in entry.LISTENERS.items()),
        **entry.properties(identity),
    }


def _ready(process: subprocess.Popen[str]) -> str:
    """Return the line with which a server reports that it is ready."""
    assert process.stdout is not None
    return process.stdout.readline()


@contextmanager
def kfake(cpus: set[int], *, synced: bool) -> Iterator[Running]:
    """Run the broker of franz-go, in memory or with a sync of each write. Needs Go; the first use builds it."""
    prepare()
    program = ROOT / "build" / "kfake"
    go = shutil.which("go")
    if go is None:
        raise FileNotFoundError("no Go here")
    program.parent.mkdir(exist_ok=True)
    subprocess.run([go, "build", "-o", program, "."], cwd=Path(__file__).parent / "kfake", check=True)
    with tempfile.TemporaryDirectory(prefix="kfake-") as folder, reserved_port() as held:
        port = held.getsockname()[1]
        with pinned(cpus):
            process = subprocess.Popen([program, str(port), *([folder] if synced else [])], stdout=subprocess.PIPE)
        try:
            until_joined(port, lambda: process.poll() is not None)
            yield Running("kfake", port, process.pid, folder if synced else None)
        finally:
            process.terminate()
            process.communicate()


@contextmanager
def kafka(cpus: set[int], identity: Path | None = None, version: str = VERSION) -> Iterator[Running]:
    """Start one node of Apache Kafka. identity: as of `tenure`. Raises ApacheKafkaError."""
    prepare()
    if identity is None:
        node = ApacheKafka(KAFKA_SETTINGS, JVM_FLAGS, version)
    else:
        node = ApacheKafka({**KAFKA_SETTINGS, **entry.properties(identity)}, JVM_FLAGS, listeners=dict(entry.LISTENERS))
    failed: list[BaseException] = []

    def start() -> None:
        try:
            with pinned(cpus):  # of this thread, and of the processes that it starts
                node.start()
        except BaseException as error:  # noqa: BLE001 - raised again below
            failed.append(error)

    try:
        began = time.perf_counter()
        starter = threading.Thread(target=start)
        starter.start()
        until_joined(node.port, lambda: bool(failed))
        start_s = time.perf_counter() - began
        starter.join()
        if failed:
            raise failed[0]
        if identity is not None:
            entry.add_user(node.port)
        yield Running("kafka", node.port, node.pid, str(node.log_dir), start_s, ports=node.ports)
    finally:
        node.close()
