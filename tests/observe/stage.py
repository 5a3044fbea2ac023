"""Plays a scripted history with real clients on a server, and keeps what was written and said meanwhile.

A `Stage` is one history: a group and topics of its own on a server that several histories share. Its consumers are
processes (consumer.py), so a script can kill and freeze them. A light producer writes to its topics, so that consumers
have offsets to commit.

What is kept is a `History`: the records of the group in `__consumer_offsets`, what the server itself says of the group
(Kafka's log lines, Tenure's recorded events), and the group's live state once a second.

House rule: a script waits for the server's view of the group, and never for a time alone.
"""

from __future__ import annotations

import base64
import dataclasses
import gzip
import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self
from uuid import UUID

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from coordinator.client.client import Client
from coordinator.client.errors import ClientError
from coordinator.client.events import EventReader
from coordinator.client.group_settings import change_settings
from coordinator.client.groups import describe_groups, remove_seats
from coordinator.story.described import Group
from coordinator.story.events import fields_of
from coordinator.story.records.values import read_key
from protocol.messages import MetadataRequest
from protocol.records.batch import CorruptBatch
from protocol.records.walk import decode_batches
from tests.interop.clients import CLIENTS
from tests.interop.worker import Settings as JavaSettings
from tests.observe.settings import Settings
from tests.support.apache import ApacheKafka
from tests.support.patience import WITHIN_S
from tests.support.preloaded import popen
from tests.support.started import Closes
from tests.support.tenure import Tenure

LIVE_INTERVAL_S = 1.0
SETTLE_S = 60.0
EVENTS_S = 0.5
"""A server writes its events, and its log, a little later."""

POLL_S = 0.05
PRODUCE_INTERVAL_S = 0.1
ROOT = Path(__file__).resolve().parents[2]

BROKER_SESSION_MS = 3_000
"""The setting group.consumer.session.timeout.ms of the servers (play.py); an observer asks for it."""

Server = ApacheKafka | Tenure


class LogRecord(NamedTuple):
    """A record of `__consumer_offsets`. batch: where its batch begins, which no two batches of a partition share."""

    partition: int
    offset: int
    at_ms: int
    key: bytes
    value: bytes | None
    batch: int


@dataclass
class History:
    """One history as it was played.

    server: `kafka-3.9`, `kafka-4.4` or `tenure`. lines: of the server's log, those that name the group.
    events: of the group in `__rebalance_events`. described: live states, each with the time of its answer.
    topic_ids: the names of topics by id; records of the consumer protocol have ids. session_ms: the session timeout of
    the group's members, if it has the consumer protocol. traits: what a seed drew (random_histories.py).
    """

    script: str
    server: str
    group: str
    records: list[LogRecord] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    described: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    topic_ids: dict[str, str] = field(default_factory=dict)
    session_ms: int = BROKER_SESSION_MS
    traits: dict[str, Any] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Write it as compressed JSON."""
        records = [
            [partition, offset, at_ms, _text(key), None if value is None else _text(value), batch]
            for partition, offset, at_ms, key, value, batch in self.records
        ]
        path.write_bytes(gzip.compress(json.dumps(self.__dict__ | {"records": records}).encode(), mtime=0))

    @classmethod
    def load(cls, path: Path) -> History:
        """The inverse of `save`."""
        fields = json.loads(gzip.decompress(path.read_bytes()))
        fields["records"] = [
            LogRecord(partition, offset, at_ms, _bytes(key), None if value is None else _bytes(value), batch)
            for partition, offset, at_ms, key, value, batch in fields["records"]
        ]
        fields["described"] = [(at_ms, told) for at_ms, told in fields["described"]]
        return cls(**fields)


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text)


class Member:
    """A consumer's process."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name = name
        self._process = popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    @property
    def is_running(self) -> bool:
        """Whether the process is there; a frozen one is."""
        return self._process.poll() is None

    def tell(self, do: str, **fields: Any) -> None:
        """Give it a command."""
        assert self._process.stdin is not None
        self._process.stdin.write((json.dumps({"do": do, **fields}) + "\n").encode())
        self._process.stdin.flush()

    def close(self) -> None:
        """Let it close its consumer, and wait for its end."""
        self.tell("close")
        self._process.wait(WITHIN_S)

    def kill(self) -> None:
        """SIGKILL, and wait for its end."""
        self.signal(signal.SIGKILL)
        self._process.wait()
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):  # of a command that its end came before
                self._process.stdin.close()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal: SIGSTOP freezes it."""
        self._process.send_signal(number)


class Stage(Closes):
    """One history while it is played. protocol, client: of its consumers, unless one names others."""

    def __init__(self, server: Server, script: str, *, protocol: str = "classic", client: str = "confluent") -> None:
        self.bootstrap = server.bootstrap
        self.script = script
        self.protocol = protocol
        self.client = client
        self.group = f"{script}-{time.time_ns() // 1_000_000 % 10_000_000}"
        self.topics: list[str] = []
        self._partitions: dict[str, int] = {}
        self._topic_ids: dict[str, str] = {}
        self.members: list[Member] = []
        self.described: list[tuple[int, dict[str, Any]]] = []
        self.session_ms = BROKER_SESSION_MS
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        self._asking = Client(self.bootstrap, 10.0)
        self._watching = Client(self.bootstrap, 10.0)
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._watch), threading.Thread(target=self._produce)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def close(self) -> None:
        """Kill all members, and watch no more."""
        # All at once, or a member that is killed late sees the others expire.
        for member in self.members:
            member.signal(signal.SIGKILL)
        for member in self.members:
            member.kill()
        self._over.set()
        for thread in self._threads:
            thread.join()
        self._asking.close()
        self._watching.close()

    # -- what a script does

    def topic(self, partitions: int = 4) -> str:
        """Make a topic that the producer writes to."""
        name = f"{self.group}-{len(self.topics) + 1}"
        made = self._admin.create_topics([NewTopic(name, partitions, 1)], operation_timeout=WITHIN_S)
        made[name].result(WITHIN_S)
        self.topics.append(name)
        self._partitions[name] = partitions
        self._topic_ids[str(self._id_of(name))] = name
        return name

    def _id_of(self, topic: str) -> UUID:
        """The id of a topic, once all of the server knows it."""
        request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)])
        while (found := self._asking.request(request, at_least=10).topics[0]).error_code:
            self._over.wait(POLL_S)
        topic_id: UUID = found.topic_id
        return topic_id

    def grow(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions."""
        self._admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(WITHIN_S)
        self._partitions[topic] = partitions

    def grow_by(self, topic: str, more: int, most: int) -> None:
        """Give a topic some more partitions, but not more than `most`."""
        partitions = self._partitions[topic] + more
        if partitions <= most:
            self.grow(topic, partitions)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic."""
        self.topics.remove(topic)
        self._admin.delete_topics([topic])[topic].result(WITHIN_S)

    def start(
        self, name: str, *, topics: Sequence[str] = (), instance_id: str | None = None, client: str = "", **more: Any
    ) -> Member:
        """Start a consumer of the first topic, or of `topics`."""
        wanted = tuple(topics) or (self.topics[0],)
        client = client or self.client
        if client.startswith("kafka-clients"):
            wanted_settings = JavaSettings(
                self.bootstrap, self.group, wanted[0], instance_id, more.get("assignor", "range"),
                more.get("session_ms", 3_000), 300, more.get("max_poll_ms", 10_000), protocol=self.protocol,
            )  # fmt: skip
            java, *arguments = CLIENTS[client].command()
            command = [java, "-Dauto.commit=true", *arguments, json.dumps(dataclasses.asdict(wanted_settings))]
        else:
            settings = Settings(
                client, self.bootstrap, self.group, wanted, name, instance_id, protocol=self.protocol, **more
            )
            command = [sys.executable, "-m", "tests.observe.consumer", settings.text()]
        member = Member(name, command)
        self.members.append(member)
        return member

    def set_session(self, session_ms: int, heartbeat_ms: int) -> None:
        """Give the group of the consumer protocol other times than the broker's."""
        wanted = {"consumer.heartbeat.interval.ms": heartbeat_ms, "consumer.session.timeout.ms": session_ms}
        change_settings(self._asking, self.group, {name: str(value) for name, value in wanted.items()})
        self.session_ms = session_ms

    def remove(self, *instance_ids: str) -> None:
        """Remove static members as an operator does."""
        remove_seats(self._asking, self.group, dict.fromkeys(instance_ids, ""))

    def settle(self, members: int, *, epoch_from: int | None = None) -> int:
        """Wait until the group is stable with so many members (or empty with none); its member ids' hash.

        epoch_from: wait for other member ids than those of an earlier `settle`.
        """
        return self.until(
            f"{members} members", lambda group: len(group.members) == members and _is_settled(group), other=epoch_from
        )

    def until(self, what: str, holds: Any, *, other: int | None = None, within_s: float = SETTLE_S) -> int:
        """Wait until the description of the group fits."""
        end = time.monotonic() + within_s
        while True:
            group = self.describe()
            if group is not None and holds(group) and (now := _mark(group)) != other:
                return now
            assert time.monotonic() < end, f"{self.script}: not in time: {what}; {group}"
            self._over.wait(POLL_S)

    def changed(self, before: int, members: int) -> int:
        """Wait until the group is stable again, with other members or assignments than at `before`."""
        return self.settle(members, epoch_from=before)

    def pause(self, seconds: float) -> None:
        """Let the group be, as operators do."""
        self._over.wait(seconds)

    def describe(self) -> Group | None:
        """The group as the server describes it; None if it can't."""
        try:
            found = describe_groups(self._asking, [self.group])[self.group]
        except ClientError:
            return None
        return found if isinstance(found, Group) else None

    def history(self, server: Server, server_name: str) -> History:
        """All records and words about the group so far."""
        self.pause(EVENTS_S)
        history = History(
            self.script, server_name, self.group, described=list(self.described), topic_ids=self._topic_ids,
            session_ms=self.session_ms,
        )  # fmt: skip
        if isinstance(server, ApacheKafka):
            history.records = list(read_log(server.log_dir, self.group))
            history.lines = lines_of(server, self.group)
        else:
            history.records = list(read_log(server.data_dir, self.group))
            history.events = events_of(self.bootstrap, self.group)
        return history

    # -- beside the script

    def _watch(self) -> None:
        while not self._over.wait(LIVE_INTERVAL_S):
            try:
                found = describe_groups(self._watching, [self.group])[self.group]
            except ClientError:
                continue
            if isinstance(found, Group):
                self.described.append((time.time_ns() // 1_000_000, group_fields(found)))

    def _produce(self) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "log_level": 0, "linger.ms": 0})
        number = 0
        while not self._over.wait(PRODUCE_INTERVAL_S):
            for topic in list(self.topics):
                for _ in range(4):
                    number += 1
                    producer.produce(topic, b"x", str(number).encode())
            producer.poll(0)
        producer.flush(5)


def _is_settled(group: Group) -> bool:
    if group.consumer is not None:
        current = all(
            member.seat is not None and member.seat.epoch == group.consumer.group_epoch for member in group.members
        )
        return group.state == "Stable" and current if group.members else group.state == "Empty"
    return group.state == ("Stable" if group.members else "Empty")


def _mark(group: Group) -> int:
    return hash(
        (
            group.consumer.group_epoch if group.consumer else 0,
            *((member.member_id, str(member.assignment), member.subscription) for member in group.members),
        )
    )


def group_fields(group: Group) -> dict[str, Any]:
    """A description as JSON; `accuracy` makes a Group of it again."""
    return {
        "group_id": group.group_id,
        "state": group.state,
        "protocol_type": group.protocol_type,
        "protocol_name": group.protocol_name,
        "members": [
            [
                member.member_id, member.group_instance_id, member.client_id, member.client_host, member.assignment,
                sorted(member.subscription or ()),
                None if member.seat is None else [*member.seat],
            ]
            for member in group.members
        ],
        "consumer": None if group.consumer is None else [group.consumer.group_epoch, group.consumer.target_epoch],
    }  # fmt: skip


# -- what the server has of a group


def read_log(folder: Path, group: str) -> Iterator[LogRecord]:
    """Yield a group's records in `__consumer_offsets` of a data folder. The server may still write to it."""
    for partition in sorted(folder.glob("__consumer_offsets-*")):
        number = int(partition.name.rpartition("-")[2])
        for segment in sorted(partition.glob("*.log")):
            with suppress(CorruptBatch):  # the end, which is being written
                for batch in decode_batches(segment.read_bytes()):
                    for offset, record in zip(batch.offsets, batch.records, strict=True):
                        if not batch.header.is_control and read_key(record.key).group_id == group:
                            yield LogRecord(
                                number, offset, record.timestamp_ms, record.key, record.value, batch.header.base_offset
                            )


def lines_of(kafka: ApacheKafka, group: str) -> list[str]:
    """The lines of Kafka's log that name a group."""
    named = re.compile(rf"(?<![\w.-]){re.escape(group)}(?![\w.-])")
    return [line for line in kafka.log_file.read_text(errors="replace").splitlines() if named.search(line)]


def events_of(bootstrap: str, group: str) -> list[dict[str, Any]]:
    """The recorded events of a group of Tenure."""
    with Client(bootstrap, 10.0) as client:
        return [fields_of(event) for event in EventReader(client).read() if event.group == group]
