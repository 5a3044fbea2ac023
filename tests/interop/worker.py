"""The loop of a consumer process: one client, events out, commands in.

A worker is `python -m tests.interop.worker_<client> '<settings as JSON>'`. It polls its consumer without end, prints
what happens to it as JSON lines on standard output, and reads commands as JSON lines from standard input:

    {"do": "commit", "offsets": {"0": [5, "metadata"]}}  ->  committed | commit_failed
    {"do": "read_committed", "partitions": [0, 1]}       ->  read_committed
    {"do": "produce", "records": [...], "compression": "gzip"}  ->  produced | produce_failed
    {"do": "close"}                                      ->  closing, closed, and the process ends

A worker's first produce makes its producer; compression is `none` or `gzip`, acks is all, and the client chooses the
partitions. A record is `[key, value, [[name, value], ...]]`, all values in base64, or null where there is none.

Unasked it prints: started; assigned, revoked and lost from the client's rebalance callbacks; membership whenever
generation, member id or partitions have changed; fetched once a Fetch has answered for every partition it owns; polled
from time to time after a poll; records, if the settings say so, with `[partition, offset, record]` of each that was
consumed; notice for what the client says to its operator; fatal when the client gives up, which
ends the process.

House rule: the clients differ in their worker_*.py only; this loop knows none of them.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

POLL_MS = 50
REPORT_INTERVAL_S = 0.25


@dataclass(frozen=True, slots=True)
class Login:
    """How a consumer logs in over TLS. ca: the file of the CA. mechanism: of SASL."""

    ca: str
    mechanism: str
    user: str
    password: str


@dataclass(frozen=True, slots=True)
class Settings:
    """A worker's settings; times in milliseconds.

    records: whether to report each consumed record. login: None for a listener without security.
    protocol: `classic` or `consumer` (KIP-848); with the latter the server decides on assignor, session timeout and
    heartbeats. pattern: subscribe to this regular expression, which the server resolves, in place of the topic; only
    partitions of the topic are reported.
    """

    bootstrap: str
    group: str
    topic: str
    group_instance_id: str | None = None
    assignor: str = "range"
    session_timeout_ms: int = 6_000
    heartbeat_interval_ms: int = 500
    rebalance_timeout_ms: int = 20_000
    records: bool = False
    login: Login | None = None
    protocol: str = "classic"
    pattern: str | None = None

    @classmethod
    def from_json(cls, text: str) -> Settings:
        """The settings of a command line."""
        fields = json.loads(text)
        return cls(**fields | {"login": Login(**fields["login"]) if fields["login"] else None})


@dataclass(frozen=True, slots=True)
class Membership:
    """A consumer's state in its group, as the client itself sees it."""

    generation: int
    member_id: str
    partitions: tuple[int, ...]


class Record(NamedTuple):
    """A record, as it is produced and consumed."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    def to_json(self) -> list[Any]:
        """Return the fields of its JSON line."""
        return [_base64(self.key), _base64(self.value), [[name, _base64(value)] for name, value in self.headers]]

    @classmethod
    def from_json(cls, fields: list[Any]) -> Record:
        """The inverse of to_json."""
        key, value, headers = fields
        return cls(_bytes(key), _bytes(value), tuple((name, _bytes(each)) for name, each in headers))


class Consumed(NamedTuple):
    """A record with its partition and offset."""

    partition: int
    offset: int
    record: Record


class ClientError(Exception):
    """An error of the client: Kafka's name for it, and whether the client is finished."""

    def __init__(self, name: str, text: str, *, fatal: bool = False) -> None:
        super().__init__(f"{name}: {text}")
        self.name = name
        self.text = text
        self.fatal = fatal


class Consumer(Protocol):
    """The interface of every client. Methods that fail raise ClientError."""

    async def start(self) -> None:
        """Subscribe."""

    async def poll(self) -> Sequence[Consumed]:
        """One short poll."""

    def membership(self) -> Membership:
        """Return its current membership."""

    def high_watermarks(self) -> Mapping[int, int | None]:
        """Return the high watermark of each owned partition from the last Fetch; None before."""

    async def commit(self, offsets: Mapping[int, tuple[int, str]]) -> None:
        """Commit offset and metadata by partition, and wait for the answer."""

    async def read_committed(self, partitions: Iterable[int]) -> Mapping[int, tuple[int, str] | None]:
        """Offset and metadata by partition, None where there is none."""

    async def produce(self, records: Sequence[Record], compression: str) -> None:
        """Produce to the topic, and wait until all are acknowledged."""

    async def close(self) -> None:
        """Close as the client does: a static member sends no LeaveGroup."""


def librdkafka_login(login: Login | None) -> dict[str, str]:
    """The properties with which librdkafka logs in."""
    if login is None:
        return {}
    return {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": login.ca,
        "sasl.mechanism": login.mechanism,
        "sasl.username": login.user,
        "sasl.password": login.password,
    }


class Reporter:
    """Events as JSON lines on standard output, one write each; `at` is the machine's monotonic clock in seconds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def emit(self, event: str, **fields: Any) -> None:
        """Print one event."""
        line = json.dumps({"event": event, "at": time.monotonic(), **fields}) + "\n"
        with self._lock:
            sys.stdout.write(line)
            sys.stdout.flush()


class NoticeHandler(logging.Handler):
    """Reports the client's log records, from WARNING on, as notices."""

    def __init__(self, reporter: Reporter) -> None:
        super().__init__(logging.WARNING)
        self._reporter = reporter

    def emit(self, record: logging.LogRecord) -> None:
        """Report one log record."""
        self._reporter.emit("notice", text=record.getMessage(), logger=record.name)


def read_commands() -> queue.SimpleQueue[dict[str, Any]]:
    """Standard input's commands; the process ends when its parent does."""
    commands: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def read() -> None:
        for line in sys.stdin:
            commands.put(json.loads(line))
        os._exit(1)

    threading.Thread(target=read, daemon=True).start()
    return commands


def settings_from_command_line() -> Settings:
    """The worker's only argument."""
    return Settings.from_json(sys.argv[1])


async def run(consumer: Consumer, reporter: Reporter, settings: Settings, client: str, version: str) -> None:
    """Poll until the close command, or until the client gives up."""
    commands = read_commands()
    reporter.emit("started", client=client, version=version, pid=os.getpid())
    try:
        await consumer.start()
        await _poll_until_closed(consumer, reporter, commands, records=settings.records)
    except ClientError as error:
        reporter.emit("fatal", error=error.name, text=error.text)
        raise SystemExit(1) from None


async def _poll_until_closed(
    consumer: Consumer, reporter: Reporter, commands: queue.SimpleQueue[dict[str, Any]], *, records: bool
) -> None:
    membership: Membership | None = None
    fetched = False
    reported = 0.0
    while True:
        consumed = await consumer.poll()
        if consumed and records:
            reporter.emit(
                "records", records=[[each.partition, each.offset, each.record.to_json()] for each in consumed]
            )
        if (now := consumer.membership()) != membership:
            membership = now
            fetched = False
            reporter.emit(
                "membership", generation=now.generation, member_id=now.member_id, partitions=list(now.partitions)
            )
        if not fetched and membership.partitions:
            high_watermarks = consumer.high_watermarks()
            fetched = all(high_watermarks.get(partition) is not None for partition in membership.partitions)
            if fetched:
                reporter.emit("fetched", high_watermarks=dict(high_watermarks))
        if time.monotonic() - reported >= REPORT_INTERVAL_S:
            reported = time.monotonic()
            reporter.emit("polled")
        while not commands.empty():
            command = commands.get_nowait()
            if command["do"] == "close":
                reporter.emit("closing")
                await consumer.close()
                reporter.emit("closed")
                return
            await _obey(command, consumer, reporter)


async def _obey(command: dict[str, Any], consumer: Consumer, reporter: Reporter) -> None:
    if command["do"] == "commit":
        offsets = {int(partition): (offset, text) for partition, (offset, text) in command["offsets"].items()}
        try:
            await consumer.commit(offsets)
        except ClientError as error:
            reporter.emit("commit_failed", error=error.name, text=error.text)
            if error.fatal:
                raise
        else:
            reporter.emit("committed", generation=consumer.membership().generation, offsets=command["offsets"])
    elif command["do"] == "read_committed":
        found = await consumer.read_committed(command["partitions"])
        reporter.emit("read_committed", offsets={str(partition): value for partition, value in found.items()})
    elif command["do"] == "produce":
        try:
            await consumer.produce([Record.from_json(each) for each in command["records"]], command["compression"])
        except ClientError as error:
            reporter.emit("produce_failed", error=error.name, text=error.text)
        else:
            reporter.emit("produced", count=len(command["records"]))
    else:
        raise AssertionError(command)


def main(consumer: Consumer, reporter: Reporter, settings: Settings, client: str, version: str) -> None:
    """Run a worker to its end."""
    asyncio.run(run(consumer, reporter, settings, client, version))


def _base64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
