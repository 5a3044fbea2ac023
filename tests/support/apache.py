"""Apache Kafka itself, for tests: one KRaft node on loopback, and Kafka's command line tools.

Maven fetches the jars of `apache-kafka.pom.xml` beside this file for a version into build/oracle, and again only when
that file changes. A node is one process, broker and controller together, with a small heap. It is ready when its log
says that it started and its group coordinator has loaded every partition of `__consumer_offsets`.

    with ApacheKafka(listeners={"SASL": "SASL_PLAINTEXT", "OPEN": "PLAINTEXT"}, properties=text) as kafka:
        client = {"bootstrap.servers": kafka.bootstrap_of("SASL"), ...}

starts a node with these listeners, by name and security protocol. `text` is what a user would write into the
properties file: `listener.name.sasl.plain.sasl.jaas.config=...`, `authorizer.class.name=...`, `super.users=...`.
`Tenure` takes the same two arguments. Beside them the node gets a listener INTERNAL for itself and for `start`, on
which it is User:kafka, a super user. So the test's own listeners may refuse anybody, ANONYMOUS too, and `super.users`
needs only the test's. The authorizer of KRaft is AUTHORIZER.

House rule: nothing here imports Tenure, so that no result about Kafka comes from our code. Even the two requests that
this module sends are packed by hand.
"""

from __future__ import annotations

import atexit
import fcntl
import functools
import hashlib
import os
import re
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from tests.support.ports import reserved_port
from tests.support.started import Started

VERSION = "3.9.1"
"""The release that Tenure is compared with."""
VERSION_43 = "4.3.1"
"""The release before, which answers otherwise in some cases (tests/oracle/test_before_44.py)."""
VERSION_44 = "4.4.0"
"""The release that the consumer protocol (KIP-848) is compared with, and the newest versions of the APIs."""

POM = Path(__file__).with_name("apache-kafka.pom.xml")
BUILD = Path(__file__).resolve().parents[2] / "build" / "oracle"
START_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 120.0
CLUSTER_ID = "tenure-oracle-clusterA"

# These flags make a JVM start fast and stay small: tests run it for seconds, beside others.
JVM_FLAGS = ("-Xms128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
NODE_HEAP = "-Xmx512m"
TOOL_HEAP = "-Xmx128m"
NODE_FLAGS = (*JVM_FLAGS, NODE_HEAP)

DEFAULT_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    # A killed node may come back only after the end of its old broker session.
    "broker.session.timeout.ms": "5000",
    "broker.heartbeat.interval.ms": "500",
    # With one node no other can take over partitions, so a stop needs no negotiation.
    "controlled.shutdown.enable": "false",
}

AT_ONCE = {
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.assignment.interval.ms": "0",
    "group.consumer.assignor.offload.enable": "false",
}
"""Settings of Kafka 4 with which a heartbeat is answered with the target that it causes itself."""

LOG4J = """\
log4j.rootLogger=INFO, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{HH:mm:ss,SSS} %-5p %m (%c)%n
"""
TOOL_LOG4J = """\
log4j.rootLogger=WARN, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%-5p %m (%c)%n
"""
STARTED = "Kafka Server started"

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
"""The value of `authorizer.class.name` for ACLs."""
INTERNAL = "INTERNAL"
NODE_USER = "kafka"
NODE_LOGIN = (
    f'org.apache.kafka.common.security.plain.PlainLoginModule required username="{NODE_USER}" password="{NODE_USER}" '
    f'user_{NODE_USER}="{NODE_USER}";'
)
"""How a node with listeners of a test's own logs in to itself."""

FIND_COORDINATOR_KEY = 10
DESCRIBE_GROUPS_KEY = 15
SASL_HANDSHAKE_KEY = 17

REASONS = {
    r"Adding new member ": "member_joined",
    r"Leader \S+ re-joining group during Stable": "leader_rejoined",
    r"Updating metadata for static member ": "static_member_replaced",
    r"Updating metadata for member \S+ during Stable": "member_rejoined",
    r"removing member \S+ on heartbeat expiration": "member_expired",
}
"""How Apache Kafka's log gives the reason of a rebalance, and the kind of Tenure's cause."""


class ApacheKafkaError(Exception):
    """Kafka could not be fetched or started, or gave no answer; the text has Kafka's output."""


@functools.cache
def available() -> str | None:
    """Return None if Kafka can run here, else one line with the reason. Fetches missing jars."""
    if shutil.which("java") is None:
        return "Apache Kafka needs Java, and there is no java here"
    try:
        jars()
    except ApacheKafkaError as error:
        return str(error)
    return None


@functools.cache
def jars(version: str = VERSION, pom: Path = POM) -> Path:
    """Return the folder of a pom's jars. Maven fetches missing ones, for one process at a time."""
    folder = BUILD / f"jars-{version}-{hashlib.sha256(pom.read_bytes()).hexdigest()[:12]}"
    if folder.is_dir():
        return folder
    if shutil.which("mvn") is None:
        raise ApacheKafkaError("Apache Kafka is fetched by Maven, and there is no mvn here")
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / "fetch.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.is_dir():
            return folder
        with tempfile.TemporaryDirectory(dir=BUILD) as fetched:
            command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", "-DincludeScope=runtime"]
            command += [f"-Dkafka.version={version}", f"-DoutputDirectory={fetched}/jars"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                said = (done.stdout or done.stderr).strip().splitlines()
                raise ApacheKafkaError(f"Maven could not fetch Apache Kafka: {said[0] if said else 'it said nothing'}")
            Path(fetched, "jars").rename(folder)
    return folder


def run_tool(
    main_class: str, *arguments: str, timeout_s: float = 60.0, version: str = VERSION
) -> subprocess.CompletedProcess[str]:
    """Run one of Kafka's command line classes (its full name), of release `version`, to its end.

    Output is captured as text; the caller checks the exit code.
    """
    log4j = BUILD / "tool-log4j.properties"
    if not log4j.exists():
        BUILD.mkdir(parents=True, exist_ok=True)
        log4j.write_text(TOOL_LOG4J)
    return subprocess.run(
        _java((*JVM_FLAGS, TOOL_HEAP), log4j, main_class, arguments, version),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def _java(
    flags: tuple[str, ...], log4j: Path, main_class: str, arguments: tuple[str, ...], version: str = VERSION
) -> list[str]:
    archive = _archive(version)
    if flags[: len(JVM_FLAGS)] == JVM_FLAGS and archive.exists():
        flags += (f"-XX:SharedArchiveFile={archive}", "-Xlog:disable")
    return [
        "java", *flags, f"-Dlog4j.configuration=file:{log4j}", "-cp", f"{jars(version)}/*", main_class, *arguments,
    ]  # fmt: skip


def _archive(version: str) -> Path:
    """The classes of a release as a JVM has them in memory: a node or a tool then starts with a third less CPU."""
    return BUILD / f"{jars(version).name}.jsa"


@functools.cache
def _write_archive(version: str) -> None:
    """Let a node write the archive as it ends, unless one is there. A JVM that can't use an archive does without."""
    archive, written = _archive(version), _archive(version).with_suffix(".new")
    with (BUILD / "archive.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            with ApacheKafka(jvm_flags=(*NODE_FLAGS, f"-XX:ArchiveClassesAtExit={written}"), version=version) as node:
                node.stop()
            written.touch()
            written.rename(archive)


class ApacheKafka(Started):
    """One node of Apache Kafka, of release VERSION unless another is named.

    bootstrap: "127.0.0.1:port" of its first listener; the same after a restart.
    log_dir: its data folder, with `__consumer_offsets-0` and so on.
    log_file: the node's log of all its starts.
    settings: Kafka's names to values; a change takes effect at the next start.
    jvm_flags: replace the flags that suit tests.
    listeners, properties: see the module.
    loggers: log levels other than INFO, by class; `INFO` of the rest has all that Kafka says of groups by default.

    `with ApacheKafka(settings={"group.max.size": "3"}) as kafka:` starts it, kills it and removes its data. After
    `stop` or `kill`, `start` runs it again on the same data and ports.
    """

    def __init__(
        self,
        settings: dict[str, str] | None = None,
        jvm_flags: tuple[str, ...] = NODE_FLAGS,
        version: str = VERSION,
        *,
        listeners: Mapping[str, str] | None = None,
        properties: str = "",
        loggers: Mapping[str, str] | None = None,
    ) -> None:
        self.loggers = dict(loggers or {})
        self.jvm_flags = jvm_flags
        self.version = version
        self.folder = Path(tempfile.mkdtemp(prefix="apache-kafka-"))
        self.log_dir = self.folder / "data"
        self.log_file = self.folder / "kafka.log"
        self.is_secured = listeners is not None
        protocols = {**listeners, INTERNAL: "SASL_PLAINTEXT"} if listeners is not None else {"PLAINTEXT": "PLAINTEXT"}
        # Held as long as this object lives: see _reserve.
        self._ports = {name: reserved_port() for name in (*protocols, "CONTROLLER")}
        self.ports = {name: int(held.getsockname()[1]) for name, held in self._ports.items()}
        self.port = next(iter(self.ports.values()))
        self.bootstrap = f"127.0.0.1:{self.port}"
        controller = f"127.0.0.1:{self.ports['CONTROLLER']}"
        addresses = ",".join(f"{name}://{self.bootstrap_of(name)}" for name in protocols)
        self.settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"{addresses},CONTROLLER://{controller}",
            "advertised.listeners": addresses,
            "listener.security.protocol.map": ",".join(
                f"{name}:{protocol}"
                for name, protocol in {**protocols, "CONTROLLER": protocols.get(INTERNAL, "PLAINTEXT")}.items()
            ),
            "log.dirs": str(self.log_dir),
            **(_internal_settings() if self.is_secured else {}),
            **DEFAULT_SETTINGS,
            **(settings or {}),
        }
        self.properties = properties
        self._process: subprocess.Popen[str] | None = None
        self._started = threading.Event()
        self._log_reader: threading.Thread | None = None
        self._format()

    def bootstrap_of(self, listener: str) -> str:
        """HOST:PORT of the listener of that name."""
        return f"127.0.0.1:{self.ports[listener]}"

    @property
    def pid(self) -> int:
        """The node's process id."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the node and wait until its group coordinator answers. Raises ApacheKafkaError when it doesn't."""
        assert self._process is None
        if self.jvm_flags == NODE_FLAGS:
            _write_archive(self.version)
        (self.folder / "node.properties").write_text(self._properties(), encoding="latin-1")
        deadline = time.monotonic() + START_TIMEOUT_S
        self._started.clear()
        self._process = subprocess.Popen(
            _java(
                self.jvm_flags,
                self.folder / "log4j.properties",
                "kafka.Kafka",
                (str(self.folder / "node.properties"),),
                self.version,
            ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        atexit.register(self.kill)
        self._log_reader = threading.Thread(target=self._read_log, args=(self._process,), daemon=True)
        self._log_reader.start()
        if not self._started.wait(START_TIMEOUT_S) or self._process.poll() is not None:
            raise ApacheKafkaError(f"Apache Kafka did not start; its log ends with:\n{self._log_tail()}")
        self._wait_for_coordinator(deadline)

    def stop(self) -> None:
        """Ask the node to stop, and wait for its end. The data stay until `close`."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
        self._await_end()

    def kill(self) -> None:
        """End the node with SIGKILL. The data stay until `close`."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
        self._await_end()

    def close(self) -> None:
        """Kill the node if it runs, remove its data and give up its ports: an orderly end takes 0.3 s of CPU."""
        self.kill()
        for held in self._ports.values():
            held.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def consumer_groups(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run kafka-consumer-groups against this node."""
        return consumer_groups(self.bootstrap, *arguments)

    def _properties(self) -> str:
        """The text of the node's properties file. Of a name that is there twice, Java takes the last value."""
        text = "".join(f"{name}={value}\n" for name, value in self.settings.items()) + self.properties
        if not self.is_secured:
            return text
        users = [f"User:{NODE_USER}", *re.findall(r"(?m)^super\.users=(.*)$", text)[-1:]]
        return f"{text}\nsuper.users={';'.join(users)}\n"

    def _format(self) -> None:
        """Prepare the data folder.

        Most releases need an empty folder with a name for node and cluster, and this does it without a JVM. The
        consumer protocol needs a feature level too (group.version=1), which kafka-storage writes.
        """
        loggers = "".join(f"log4j.logger.{name}={level}\n" for name, level in self.loggers.items())
        (self.folder / "log4j.properties").write_text(LOG4J + loggers)
        if self.version in (VERSION_43, VERSION_44):
            self._format_with_features()
            return
        self.log_dir.mkdir()
        (self.log_dir / "meta.properties").write_text(f"version=1\ncluster.id={CLUSTER_ID}\nnode.id=1\n")

    def _format_with_features(self) -> None:
        """Copy what kafka-storage wrote with all features of the release: the same for any settings, and once run."""
        formatted = BUILD / f"formatted-{jars(self.version).name}"
        with (BUILD / "format.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not formatted.exists():
                self._run_storage_tool()
                written = BUILD / f"formatting-{self.version}"
                shutil.copytree(self.log_dir, written, dirs_exist_ok=True)
                written.rename(formatted)
                return
        shutil.copytree(formatted, self.log_dir)

    def _run_storage_tool(self) -> None:
        configuration = self.folder / "format.properties"
        configuration.write_text(self._properties(), encoding="latin-1")
        arguments = ("format", "--cluster-id", CLUSTER_ID, "--config", str(configuration))
        command = _java(
            (*JVM_FLAGS, TOOL_HEAP),
            self.folder / "log4j.properties",
            "kafka.tools.StorageTool",
            arguments,
            self.version,
        )
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ApacheKafkaError(f"kafka-storage could not format the folder:\n{done.stdout}{done.stderr}")

    def _read_log(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with self.log_file.open("a") as log:
            for line in process.stdout:
                log.write(line)
                log.flush()
                if STARTED in line:
                    self._started.set()
        # The process has ended, so `start` must not wait for it any longer.
        process.wait()
        self._started.set()

    def _log_tail(self) -> str:
        return "".join(self.log_file.read_text().splitlines(keepends=True)[-30:]) if self.log_file.exists() else ""

    def _await_end(self) -> None:
        if self._process is None:
            return
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._log_reader is not None
        self._log_reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process = None
        atexit.unregister(self.kill)

    def _wait_for_coordinator(self, deadline: float) -> None:
        """Wait until each partition is loaded; the first FindCoordinator creates `__consumer_offsets`."""
        groups = _one_group_per_partition(int(self.settings["offsets.topic.num.partitions"]))
        attempt = threading.Event()
        while True:
            port = self.ports[INTERNAL] if self.is_secured else self.port
            with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
                if self.is_secured:
                    _log_in(connection)
                if _coordinator_is_found(connection) and _groups_are_loaded(connection, groups):
                    return
            if time.monotonic() > deadline:
                raise ApacheKafkaError(
                    f"Apache Kafka's coordinator did not load; its log ends with:\n{self._log_tail()}"
                )
            attempt.wait(0.05)


def consumer_groups(bootstrap: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run kafka-consumer-groups against any server at `bootstrap`."""
    return run_tool(
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--bootstrap-server", bootstrap, *arguments
    )


def dump_log_segments(*segments: os.PathLike[str] | str, version: str = VERSION) -> subprocess.CompletedProcess[str]:
    """Run kafka-dump-log over segments of `__consumer_offsets`, with its decoder for groups and offsets."""
    files = ",".join(os.fspath(segment) for segment in segments)
    main_class = "kafka.tools.DumpLogSegments" if version == VERSION else "org.apache.kafka.tools.DumpLogSegments"
    return run_tool(main_class, "--offsets-decoder", "--deep-iteration", "--files", files, version=version)


def _internal_settings() -> dict[str, str]:
    """The settings with which a node logs in to itself."""
    settings = {"inter.broker.listener.name": INTERNAL}
    settings |= {f"sasl.mechanism.{whose}.protocol": "PLAIN" for whose in ("inter.broker", "controller")}
    for listener in ("internal", "controller"):
        settings[f"listener.name.{listener}.sasl.enabled.mechanisms"] = "PLAIN"
        settings[f"listener.name.{listener}.plain.sasl.jaas.config"] = NODE_LOGIN
    return settings


def _log_in(connection: socket.socket) -> None:
    """Authenticate as NODE_USER: a handshake of version 0, and a bare token behind it."""
    _ask(connection, SASL_HANDSHAKE_KEY, _string("PLAIN"))
    token = f"\0{NODE_USER}\0{NODE_USER}".encode()
    connection.sendall(struct.pack(">i", len(token)) + token)
    with connection.makefile("rb") as stream:
        assert stream.read(4) == bytes(4)


def _one_group_per_partition(partition_count: int) -> list[str]:
    """Return a group id for each partition of `__consumer_offsets` (Java's String.hashCode; ASCII only)."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < partition_count:
        group_id = f"readiness-{number}"
        code = functools.reduce(lambda code, character: (31 * code + ord(character)) & 0xFFFFFFFF, group_id, 0)
        signed = code - (1 << 32) if code & 0x80000000 else code
        found.setdefault(abs(signed) % partition_count, group_id)
        number += 1
    return list(found.values())


def _coordinator_is_found(connection: socket.socket) -> bool:
    answer = _ask(connection, FIND_COORDINATOR_KEY, _string("readiness"))
    return answer[:2] == b"\0\0"


def _groups_are_loaded(connection: socket.socket, groups: list[str]) -> bool:
    answer = _ask(connection, DESCRIBE_GROUPS_KEY, struct.pack(">i", len(groups)) + b"".join(map(_string, groups)))
    (count,) = struct.unpack_from(">i", answer)
    position = 4
    for _ in range(count):
        (error,) = struct.unpack_from(">h", answer, position)
        if error != 0:
            return False
        position += 2
        for _field in ("group id", "state", "protocol type", "protocol name"):
            (length,) = struct.unpack_from(">h", answer, position)
            position += 2 + length
        position += 4  # the members: none
    return True


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _ask(connection: socket.socket, api_key: int, body: bytes) -> bytes:
    """Send a request of version 0 and return the answer's body."""
    frame = struct.pack(">hhi", api_key, 0, 1) + _string("readiness") + body
    connection.sendall(struct.pack(">i", len(frame)) + frame)
    with connection.makefile("rb") as stream:
        (size,) = struct.unpack(">i", stream.read(4))
        answer = stream.read(size)
    return answer[4:]
