"""Records requests of real clients and Apache Kafka's answers: the golden files of tests/protocol.

`python -m tests.support.record` starts Apache Kafka behind a proxy. Each client goes through a group's life: join alone
and with others, commit, fetch, leave, describe and delete. For each client, API and version the program writes one
request with its response into tests/protocol/golden: the longest, because it has the most fields. Kafka advertises the
proxy's address, so all clients use the proxy.

A golden file is JSON: client, client_version, api_key, api_version, request_hex, response_hex. Both frames are whole,
headers included, without the four bytes of their size.

House rule: the proxy changes no byte.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import aiokafka
import confluent_kafka
import kafka
import kafka.admin
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.support.apache import ApacheKafka, consumer_groups, run_tool

GOLDEN = Path(__file__).resolve().parents[1] / "protocol" / "golden"
KAFKA_VERSION = "3.9.1"
TOPIC = "golden"
SCENE_TIMEOUT_S = 60.0

RECORDED_APIS = {
    3: "metadata",
    8: "offset_commit",
    9: "offset_fetch",
    10: "find_coordinator",
    11: "join_group",
    12: "heartbeat",
    13: "leave_group",
    14: "sync_group",
    15: "describe_groups",
    16: "list_groups",
    18: "api_versions",
    19: "create_topics",
    42: "delete_groups",
    47: "offset_delete",
}


class Exchange(NamedTuple):
    """A request and its response, as frames without their size."""

    request: bytes
    response: bytes

    @property
    def api(self) -> tuple[int, int]:
        """API key and version."""
        key, api_version = struct.unpack_from(">hh", self.request)
        return key, api_version


class RecordingProxy:
    """A proxy that listens on its own port, passes all bytes on to `target_port`, and keeps the exchanges.

    It runs an event loop in its own thread. Read `exchanges` after `stop`.
    """

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []
        self.target_port = 0
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._server: asyncio.Server | None = None
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()

    def stop(self) -> None:
        """Close every connection and end the thread."""
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        assert self._server is not None
        self._server.close()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        server, to_server = await asyncio.open_connection("127.0.0.1", self.target_port)
        waiting: dict[int, bytes] = {}

        def asked(frame: bytes) -> None:
            waiting[struct.unpack_from(">i", frame, 4)[0]] = frame

        def answered(frame: bytes) -> None:
            self.exchanges.append(Exchange(waiting.pop(struct.unpack_from(">i", frame)[0]), frame))

        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(_pass_on(client, to_server, asked), _pass_on(server, to_client, answered))


async def _pass_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter, seen: Callable[[bytes], None]) -> None:
    try:
        while True:
            size = await source.readexactly(4)
            frame = await source.readexactly(struct.unpack(">i", size)[0])
            seen(frame)
            sink.write(size + frame)
            await sink.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        sink.close()


@contextlib.contextmanager
def recorded_kafka() -> Iterator[tuple[RecordingProxy, str]]:
    """Run Apache Kafka behind a proxy; yield the proxy and the address for clients."""
    proxy = RecordingProxy()
    address = f"127.0.0.1:{proxy.port}"
    with ApacheKafka(settings={"advertised.listeners": f"PLAINTEXT://{address}"}) as node:
        proxy.target_port = node.port
        try:
            yield proxy, address
        finally:
            proxy.stop()


@dataclass(frozen=True)
class Client:
    """A client program: its name and version for the golden files, and a function that runs it."""

    name: str
    version: str
    scene: Callable[[str], None]


def confluent_scene(address: str) -> None:
    """librdkafka: static members, one restart, a dynamic member, commit and fetch, leave, and the admin's calls."""
    group = "golden-confluent"
    admin = AdminClient({"bootstrap.servers": address})
    for created in admin.create_topics([NewTopic("golden-confluent", 2, 1)]).values():
        created.result(SCENE_TIMEOUT_S)

    def consumer(**settings: Any) -> Any:
        made = confluent_kafka.Consumer(
            {"bootstrap.servers": address, "group.id": group, "heartbeat.interval.ms": 100, **settings}
        )
        made.subscribe([TOPIC])
        return made

    members = [consumer(**{"group.instance.id": "one"}), consumer(**{"group.instance.id": "two"}), consumer()]
    _poll_until(lambda: all(member.assignment() for member in members), lambda: [m.poll(0.02) for m in members])
    members[0].commit(offsets=[confluent_kafka.TopicPartition(TOPIC, 0, 7)], asynchronous=False)
    members[0].committed([confluent_kafka.TopicPartition(TOPIC, 0)], timeout=SCENE_TIMEOUT_S)
    members[1].close()
    members[1] = consumer(**{"group.instance.id": "two"})
    _poll_until(lambda: bool(members[1].assignment()), lambda: [m.poll(0.02) for m in members])
    for polled in range(30):
        members[polled % 3].poll(0.02)
    admin.list_consumer_groups().result(SCENE_TIMEOUT_S)
    admin.describe_consumer_groups([group])[group].result(SCENE_TIMEOUT_S)
    for member in members:
        member.close()
    simple = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": "golden-confluent-simple"})
    simple.commit(offsets=[confluent_kafka.TopicPartition(TOPIC, 0, 7)], asynchronous=False)
    simple.close()
    admin.delete_consumer_groups(["golden-confluent-simple"])["golden-confluent-simple"].result(SCENE_TIMEOUT_S)


def kafka_python_scene(address: str) -> None:
    """kafka-python: a static and a dynamic member, commit, fetch, leave, describe, list and delete."""
    group = "golden-kafka-python"
    members = [
        kafka.KafkaConsumer(TOPIC, bootstrap_servers=address, group_id=group, heartbeat_interval_ms=100, **settings)
        for settings in ({"group_instance_id": "one"}, {})
    ]
    for member in members:
        # A leader that doesn't know the topic yet assigns nothing.
        member.partitions_for_topic(TOPIC)
    _poll_until(lambda: all(member.assignment() for member in members), lambda: [m.poll(20) for m in members])
    partition = kafka.TopicPartition(TOPIC, 0)
    owner = next(member for member in members if partition in member.assignment())
    owner.commit({partition: kafka.OffsetAndMetadata(7, "", -1)})
    owner.committed(partition)
    for polled in range(30):
        members[polled % 2].poll(20)
    admin = kafka.admin.KafkaAdminClient(bootstrap_servers=address)
    admin.describe_groups([group])
    admin.list_groups()
    for member in members:
        member.close()
    simple = kafka.KafkaConsumer(bootstrap_servers=address, group_id="golden-kafka-python-simple")
    simple.assign([partition])
    simple.commit({partition: kafka.OffsetAndMetadata(7, "", -1)})
    simple.close()
    admin.delete_groups(["golden-kafka-python-simple"])
    admin.close()


def aiokafka_scene(address: str) -> None:
    """aiokafka: a static and a dynamic member, commit, fetch and leave."""

    async def scene() -> None:
        group = "golden-aiokafka"
        members = [
            aiokafka.AIOKafkaConsumer(
                TOPIC, bootstrap_servers=address, group_id=group, heartbeat_interval_ms=100, **settings
            )
            for settings in ({"group_instance_id": "one"}, {})
        ]
        await asyncio.gather(*(member.start() for member in members))

        async def poll() -> None:
            await asyncio.gather(*(member.getmany(timeout_ms=20) for member in members))

        await _poll_async(lambda: all(member.assignment() for member in members), poll)
        partition = aiokafka.TopicPartition(TOPIC, 0)
        owner = next(member for member in members if partition in member.assignment())
        await owner.commit({partition: 7})
        await owner.committed(partition)
        for _ in range(15):
            await poll()
        for member in members:
            await member.stop()

    asyncio.run(scene())


def java_scene(address: str) -> None:
    """The Java consumer in Kafka's console consumer, static and dynamic, and the admin client in its groups tool."""
    group = "golden-java"
    common = ("--bootstrap-server", address, "--topic", TOPIC, "--group", group, "--timeout-ms", "6000")
    threads = [
        threading.Thread(target=run_tool, args=("org.apache.kafka.tools.consumer.ConsoleConsumer", *common, *more))
        for more in (
            ("--consumer-property", "heartbeat.interval.ms=200", "--consumer-property", "group.instance.id=one"),
            ("--consumer-property", "heartbeat.interval.ms=200"),
        )
    ]
    for thread in threads:
        thread.start()
    _expect(consumer_groups(address, "--list"))
    for thread in threads:
        thread.join()
    _expect(consumer_groups(address, "--describe", "--group", group, "--members", "--verbose"))
    _expect(consumer_groups(address, "--describe", "--all-groups", "--offsets"))
    _expect(consumer_groups(address, "--delete-offsets", "--group", "golden-confluent", "--topic", TOPIC))
    _expect(consumer_groups(address, "--delete", "--group", "golden-aiokafka"), codes=(0, 1))


CLIENTS = (
    Client("confluent-kafka", version("confluent-kafka"), confluent_scene),
    Client("kafka-python", version("kafka-python"), kafka_python_scene),
    Client("aiokafka", version("aiokafka"), aiokafka_scene),
    Client("java", KAFKA_VERSION, java_scene),
)


def longest(exchanges: list[Exchange]) -> dict[tuple[int, int], Exchange]:
    """Return the exchange with the most bytes for each recorded API and version."""
    chosen: dict[tuple[int, int], Exchange] = {}
    for exchange in exchanges:
        if exchange.api[0] in RECORDED_APIS:
            chosen[exchange.api] = max(chosen.get(exchange.api, exchange), exchange, key=_size)
    return chosen


def write_golden(client: Client, exchanges: list[Exchange]) -> int:
    """Write a client's golden files; return their number."""
    chosen = longest(exchanges)
    for (api_key, api_version), exchange in sorted(chosen.items()):
        content = {
            "client": client.name,
            "client_version": client.version,
            "api_key": api_key,
            "api_version": api_version,
            "request_hex": exchange.request.hex(),
            "response_hex": exchange.response.hex(),
        }
        name = f"{client.name}-{RECORDED_APIS[api_key]}-v{api_version}.json"
        (GOLDEN / name).write_text(json.dumps(content, indent=1) + "\n")
    return len(chosen)


def main() -> None:
    """Record all clients anew."""
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for former in GOLDEN.glob("*.json"):
        former.unlink()
    with recorded_kafka() as (proxy, address):
        admin = AdminClient({"bootstrap.servers": address})
        for created in admin.create_topics([NewTopic(TOPIC, 6, 1)]).values():
            created.result(SCENE_TIMEOUT_S)
        for client in CLIENTS:
            proxy.exchanges.clear()
            client.scene(address)
            sys.stdout.write(f"{client.name} {client.version}: {write_golden(client, proxy.exchanges)} golden files\n")


def _size(exchange: Exchange) -> int:
    return len(exchange.request) + len(exchange.response)


def _poll_until(done: Callable[[], bool], poll: Callable[[], object]) -> None:
    rounds = 0
    while not done():
        poll()
        rounds += 1
        assert rounds < 1000, "the client's group did not settle"


async def _poll_async(done: Callable[[], bool], poll: Callable[[], Awaitable[None]]) -> None:
    rounds = 0
    while not done():
        await poll()
        rounds += 1
        assert rounds < 1000, "the client's group did not settle"


def _expect(done: subprocess.CompletedProcess[str], codes: tuple[int, ...] = (0,)) -> None:
    assert done.returncode in codes, done.stdout + done.stderr


if __name__ == "__main__":
    main()
