"""A consumer process on kcat, librdkafka's command line: `kcat -G`, and its output.

kcat prints its assignments and the ends of partitions on standard error, its generation and member id in librdkafka's
debug lines (`debug=cgrp`), records as JSON on standard output. It takes no commands while it runs: it commits the
printed records by itself, every half a second and when it ends. A second kcat produces records, which are text.

House rule: worker.py's.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.interop.worker import (
    POLL_MS,
    ClientError,
    Consumed,
    Membership,
    Record,
    Reporter,
    Settings,
    librdkafka_login,
    main,
    settings_from_command_line,
)
from tests.support.patience import WITHIN_S

KEY_DELIMITER = "\t"
LINE_MAX_BYTES = 8 << 20

REBALANCED = re.compile(r"% Group \S+ rebalanced.*?(assign|revoke)[^:]*: (.*)")
PARTITION = re.compile(r"\[(\d+)\]")
END_OF_PARTITION = re.compile(r"% Reached end of topic \S+ \[(\d+)\] at offset (\d+)")
JOINED = re.compile(r"JoinGroup response: GenerationId (\d+), .* my MemberId ([^,\s]+),")
FENCED = "Static consumer fenced by other consumer"


class KcatConsumer:
    """A running `kcat -G`."""

    def __init__(self, settings: Settings, reporter: Reporter) -> None:
        self._settings = settings
        self._reporter = reporter
        self._process: asyncio.subprocess.Process | None = None
        self._readers: list[asyncio.Task[None]] = []
        self._records: list[Consumed] = []
        self._generation, self._member_id = -1, ""
        self._owned: set[int] = set()
        self._ends: dict[int, int] = {}
        self._fatal: ClientError | None = None

    async def start(self) -> None:
        """Start kcat and read its output."""
        settings = self._settings
        properties = {
            "session.timeout.ms": settings.session_timeout_ms,
            "heartbeat.interval.ms": settings.heartbeat_interval_ms,
            "max.poll.interval.ms": settings.rebalance_timeout_ms,
            "partition.assignment.strategy": settings.assignor,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 500,
            "reconnect.backoff.max.ms": 500,
            "debug": "cgrp",
            **librdkafka_login(settings.login),
        }
        if settings.group_instance_id is not None:
            properties["group.instance.id"] = settings.group_instance_id
        self._process = await asyncio.create_subprocess_exec(
            # It must not outlive this process, which may be killed.
            *("setpriv", "--pdeathsig", "KILL", "kcat", "-b", settings.bootstrap, "-J", "-u"),
            *(part for name, value in properties.items() for part in ("-X", f"{name}={value}")),
            *("-G", settings.group, settings.topic),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            limit=LINE_MAX_BYTES,
        )
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._readers = [
            asyncio.create_task(self._read(self._process.stdout, self._on_record)),
            asyncio.create_task(self._read(self._process.stderr, self._on_line)),
        ]

    async def poll(self) -> Sequence[Consumed]:
        """Give kcat some time; returns the records that it printed meanwhile."""
        await asyncio.wait(self._readers, timeout=POLL_MS / 1000)
        if self._fatal is not None:
            raise self._fatal
        if self._readers[1].done():
            raise ClientError("UNKNOWN", "kcat has ended", fatal=True)
        found, self._records = self._records, []
        return found

    def membership(self) -> Membership:
        """Return the membership in its last debug lines."""
        return Membership(self._generation, self._member_id, tuple(sorted(self._owned)))

    def high_watermarks(self) -> Mapping[int, int | None]:
        """Return the ends of partitions that it reported."""
        return {partition: self._ends.get(partition) for partition in self._owned}

    async def commit(self, offsets: Mapping[int, tuple[int, str]]) -> None:
        """Refuse: kcat takes no commands."""
        raise ClientError("UNSUPPORTED_VERSION", "kcat commits what it has printed, nothing else")

    async def read_committed(self, partitions: Iterable[int]) -> Mapping[int, tuple[int, str] | None]:
        """Refuse: kcat can't read committed offsets."""
        raise ClientError("UNSUPPORTED_VERSION", "kcat doesn't show committed offsets")

    async def produce(self, records: Sequence[Record], compression: str) -> None:
        """With idempotence."""
        lines = []
        for each in records:
            assert each.key is not None
            assert each.value is not None
            lines.append(each.key + KEY_DELIMITER.encode() + each.value + b"\n")
        producer = await asyncio.create_subprocess_exec(
            *("kcat", "-b", self._settings.bootstrap, "-P", "-t", self._settings.topic, "-K", KEY_DELIMITER),
            *("-z", compression, "-X", "enable.idempotence=true"),
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        _, said = await producer.communicate(b"".join(lines))
        if producer.returncode != 0:
            raise ClientError("UNKNOWN", said.decode(errors="replace"))

    async def close(self) -> None:
        """Send SIGTERM, after which it commits and closes."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(asyncio.gather(self._process.wait(), *self._readers), WITHIN_S)

    async def _read(self, stream: asyncio.StreamReader, take: Any) -> None:
        while line := await stream.readline():
            take(line.decode(errors="replace").rstrip())

    def _on_record(self, line: str) -> None:
        record = json.loads(line)
        names = record.get("headers", [])
        headers = tuple((name, _bytes(value)) for name, value in zip(names[::2], names[1::2], strict=True))
        self._records.append(
            Consumed(
                record["partition"], record["offset"], Record(_bytes(record["key"]), _bytes(record["payload"]), headers)
            )
        )

    def _on_line(self, line: str) -> None:
        if found := REBALANCED.search(line):
            partitions = [int(number) for number in PARTITION.findall(found[2])]
            event = {"assign": "assigned", "revoke": "revoked"}[found[1]]
            if event == "assigned":
                self._owned.update(partitions)
            else:
                self._owned.difference_update(partitions)
            self._ends = {partition: end for partition, end in self._ends.items() if partition in self._owned}
            self._reporter.emit(event, partitions=partitions)
        elif found := END_OF_PARTITION.search(line):
            self._ends[int(found[1])] = int(found[2])
        elif found := JOINED.search(line):
            self._generation, self._member_id = int(found[1]), found[2]
        elif line.startswith("% ERROR:") and "Fatal error" in line:
            self._fatal = ClientError("FENCED_INSTANCE_ID" if FENCED in line else "UNKNOWN", line, fatal=True)


def version() -> str:
    """Return kcat's version and its library's."""
    said = subprocess.run(["kcat", "-V"], capture_output=True, text=True, check=True).stdout
    own = re.search(r"Version (\S+)", said)
    library = re.search(r"librdkafka (\S+)", said)
    assert own is not None
    assert library is not None
    return f"{own[1]} (librdkafka {library[1]})"


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


if __name__ == "__main__":
    reports = Reporter()
    settings = settings_from_command_line()
    main(KcatConsumer(settings, reports), reports, settings, "kcat", version())
