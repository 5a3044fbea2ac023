"""Kafka's own command line on both servers: the same commands, one after the other, print the same.

The output may differ in names that a server makes up (ids, its address), times, the order of lines where Kafka's is
that of its hash tables, and what docs/start/clients.md says. Kafka's formatter reads committed offsets from
`__consumer_offsets`, and its tool for log files finds nothing wrong with Tenure's.

House rule: both servers are new, and every command is run on both.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from tests.interop.conftest import SETTINGS
from tests.interop.fleet import Fleet
from tests.interop.java.tools import Done, Tools
from tests.oracle.test_configs import DIFFERENT
from tests.support.apache import ApacheKafka
from tests.support.tenure import Tenure, wait_until

pytestmark = [pytest.mark.oracle, pytest.mark.together]

COUNT = 5_000
SEATS = ("seat-0", "seat-1")
KEYED = "".join(f"key-{number}:value-{number}\n" for number in range(20))
ROUND_ROBIN = "partitioner.class=org.apache.kafka.clients.producer.RoundRobinPartitioner"
PARSED = "--property parse.key=true --property key.separator=:"

SCRIPT: tuple[str | tuple[str, str], ...] = (
    "topics --create --topic orders --partitions 3",
    "topics --create --topic prices --partitions 2 --config cleanup.policy=compact --config segment.bytes=1048576",
    "topics --create --topic orders",
    "topics --create --topic orders --if-not-exists",
    "topics --create --topic 'bad name'",
    "topics --create --topic other --config nonsense=1",
    "topics --create --topic other --config retention.ms=never",
    "topics --create --topic other --replica-assignment 1,1",
    "topics --list",
    "topics --list --exclude-internal",
    "topics --list --topic 'o.*'",
    "topics --describe --topic orders",
    "topics --describe --exclude-internal",
    "topics --describe --topics-with-overrides",
    "topics --describe --under-replicated-partitions",
    "topics --describe --topic nowhere",
    "topics --alter --topic orders --partitions 4",
    "topics --alter --topic orders --partitions 2",
    "topics --alter --topic nowhere --partitions 2",
    "topics --describe --topic orders",
    "configs --describe --entity-type topics --entity-name prices",
    "configs --describe --entity-type topics --entity-name prices --all",
    "configs --describe --entity-type topics --entity-name __consumer_offsets --all",
    (
        "configs --alter --entity-type topics --entity-name orders"
        " --add-config retention.ms=360000,cleanup.policy=[compact,delete]"
    ),
    "configs --describe --entity-type topics --entity-name orders",
    "configs --alter --entity-type topics --entity-name orders --delete-config retention.ms",
    "configs --alter --entity-type topics --entity-name orders --delete-config retention.ms",
    "configs --alter --entity-type topics --entity-name orders --add-config retention.ms=never",
    "configs --alter --entity-type topics --entity-name nowhere --add-config retention.ms=1",
    "configs --describe --entity-type topics --entity-name orders",
    "configs --alter --entity-type topics --entity-name orders --delete-config cleanup.policy",
    "configs --describe --entity-type topics --entity-name orders",
    "configs --describe --entity-type brokers --entity-name 1",
    "configs --describe --entity-type brokers --entity-default",
    "configs --alter --entity-type brokers --entity-name 1 --add-config log.cleaner.backoff.ms=2000,log.roll.ms=360000",
    (
        "configs --alter --entity-type brokers --entity-default"
        " --add-config log.roll.ms=720000,message.max.bytes=2000000,log.cleanup.policy=[compact,delete]"
    ),
    "configs --describe --entity-type brokers --entity-name 1",
    "configs --describe --entity-type brokers --entity-default",
    "configs --describe --entity-type brokers",
    "configs --describe --entity-type topics --entity-name prices --all",
    "configs --describe --entity-type topics --entity-name orders --all",
    "configs --alter --entity-type brokers --entity-name 1 --add-config node.id=7",
    "configs --alter --entity-type brokers --entity-default --add-config group.max.size=7",
    "configs --alter --entity-type brokers --entity-name 1 --add-config log.roll.ms=soon",
    "configs --alter --entity-type brokers --entity-name 1 --add-config log.segment.bytes=13",
    "configs --alter --entity-type brokers --entity-name 1 --delete-config log.cleaner.backoff.ms,log.roll.ms",
    "configs --alter --entity-type brokers --entity-name 1 --delete-config log.roll.ms",
    "configs --describe --entity-type brokers --entity-name 1",
    (
        "configs --alter --entity-type brokers --entity-default"
        " --delete-config log.roll.ms,message.max.bytes,log.cleanup.policy"
    ),
    "configs --describe --entity-type brokers --entity-default",
    "configs --describe --entity-type topics --entity-name orders --all",
    "configs --describe --entity-type groups --entity-name readers",
    "configs --describe --entity-type groups",
    "configs --alter --entity-type groups --entity-name readers --add-config consumer.session.timeout.ms=50000",
    (f"console-producer --topic orders {PARSED} --producer-property {ROUND_ROBIN}", KEYED),
    (f"console-producer --topic prices {PARSED} --sync --producer-property linger.ms=0", KEYED),
    (
        "console-consumer --topic prices --from-beginning --max-messages 20 --property print.key=true"
        " --property print.partition=true --property print.offset=true --property print.headers=true"
    ),
    "console-consumer --topic orders --from-beginning --max-messages 20 --group readers",
    "console-consumer --topic prices --partition 1 --offset 2 --max-messages 2 --group readers",
    "console-consumer --topic prices --partition 1 --offset latest --timeout-ms 1000",
    "get-offsets --exclude-internal-topics",
    "get-offsets --topic orders",
    "get-offsets --topic orders --time earliest",
    "get-offsets --topic orders --time -1",
    "get-offsets --topic orders --time 0",
    "get-offsets --topic orders --time earliest-local",
    "get-offsets --topic orders --time latest-tiered",
    "get-offsets --topic prices --time max-timestamp",
    "get-offsets --topic-partitions orders:1-3,prices:0",
    "get-offsets --topic nowhere",
    "dump-log --files DATA/prices-0/00000000000000000000.log --print-data-log",
    "dump-log --files DATA/prices-1/00000000000000000000.log --deep-iteration --verify-index-only",
    "log-dirs --describe --topic-list prices",
    "log-dirs --describe --topic-list prices,nowhere --broker-list 1",
    "log-dirs --describe --broker-list 7",
    "leader-election --election-type preferred --all-topic-partitions",
    "leader-election --election-type preferred --topic orders --partition 0",
    "leader-election --election-type unclean --topic orders --partition 3",
    "leader-election --election-type preferred --topic orders --partition 4",
    "leader-election --election-type unclean --topic nowhere --partition 0",
    "leader-election --election-type preferred --path-to-json-file FILES/here.json",
    "reassign-partitions --list",
    "reassign-partitions --generate --topics-to-move-json-file FILES/topics.json --broker-list 1",
    "reassign-partitions --generate --topics-to-move-json-file FILES/topics.json --broker-list 7",
    *(
        f"reassign-partitions {what} --reassignment-json-file FILES/{where}.json"
        for where in ("here", "here-by-folder", "other-folder", "other-broker", "nowhere")
        for what in ("--execute", "--verify --preserve-throttles", "--cancel --preserve-throttles")
    ),
    "reassign-partitions --list",
    "consumer-groups --list",
    "consumer-groups --list --state",
    "consumer-groups --list --type",
    "consumer-groups --list --state Stable",
    "consumer-groups --list --type consumer",
    *(
        f"consumer-groups --describe --group {group}{what}{verbose}"
        for group in ("readers", "seats", "nowhere")
        for what in ("", " --offsets", " --members", " --state")
        for verbose in (" --verbose", "")
        if what or not verbose
    ),
    "consumer-groups --describe --all-groups --state",
    "consumer-groups --describe --all-groups --members --verbose",
    "consumer-groups --reset-offsets --group readers --topic orders --to-earliest --dry-run",
    "consumer-groups --reset-offsets --group readers --topic orders --shift-by -1 --dry-run",
    "consumer-groups --reset-offsets --group readers --topic orders --to-earliest --execute",
    "consumer-groups --reset-offsets --group readers --topic orders --shift-by 2 --execute",
    "consumer-groups --describe --group readers",
    "consumer-groups --reset-offsets --group readers --topic orders:1 --to-offset 3 --execute",
    "consumer-groups --reset-offsets --group readers --topic orders:1,2 --to-offset 1000000 --execute",
    "consumer-groups --reset-offsets --group readers --all-topics --to-latest --execute",
    "consumer-groups --reset-offsets --group readers --all-topics --to-datetime 2020-01-01T00:00:00.000 --dry-run",
    "consumer-groups --reset-offsets --group readers --topic orders --by-duration PT0S --dry-run",
    "consumer-groups --reset-offsets --group readers --topic orders --to-current --export --dry-run",
    "consumer-groups --reset-offsets --group beginners --topic prices --to-offset 2 --execute",
    "consumer-groups --reset-offsets --group readers --topic nowhere --to-earliest --execute",
    "consumer-groups --reset-offsets --group seats --topic orders --to-earliest --execute",
    "consumer-groups --describe --group readers --group beginners --offsets",
    "consumer-groups --delete-offsets --group readers --topic orders:1",
    "consumer-groups --delete-offsets --group readers --topic orders:1",
    "consumer-groups --delete-offsets --group readers --topic nowhere",
    "consumer-groups --delete-offsets --group seats --topic orders",
    "consumer-groups --delete-offsets --group nowhere --topic orders",
    "consumer-groups --describe --group readers --offsets",
    "consumer-groups --delete --group seats",
    "consumer-groups --delete --group readers --group nowhere",
    "consumer-groups --list",
    "topics --delete --topic other",
    "topics --delete --topic other",
    "topics --delete --topic other --if-exists",
    "topics --list",
)
"""Commands, and what some read from their standard input. DATA is the server's data folder, FILES one with FILES."""


def moves(topic: str, *, broker: int = 1, folder: str = "any") -> dict[str, Any]:
    """Where two partitions of a topic should be."""
    partitions = [
        {"topic": topic, "partition": index, "replicas": [broker], "log_dirs": [folder]} for index in range(2)
    ]
    return {"version": 1, "partitions": partitions}


FILES = {
    "topics": {"version": 1, "topics": [{"topic": "prices"}]},
    "here": moves("prices"),
    "here-by-folder": moves("prices", folder="DATA"),
    "other-folder": moves("prices", folder="/nowhere"),
    "other-broker": moves("prices", broker=7),
    "nowhere": moves("nowhere"),
}
"""JSON files that commands read."""

LIVE_FROM = "consumer-groups --list"
"""From its first occurrence on the group `seats` has two static members."""


Shown = tuple[int, list[str], list[str]]
"""Exit code, lines of standard output and of standard error."""

WITHOUT_ADDRESS = {"dump-log", "producer-perf-test"}

CHANGES = ("--create", "--alter", "--delete", "--execute")
"""Options of commands that may change what the next command finds."""
CAUGHT_UP_S = 60.0


AS_KAFKAS = {
    "offsets.topic.num.partitions": "4",
    "offsets.topic.segment.bytes": "104857600",
    "tenure.events.enable": "false",
}
"""The topic settings that give both servers' internal topics the same shape."""


class Server(NamedTuple):
    """A server under test, its data, and a folder with FILES."""

    bootstrap: str
    data: Path
    files: Path


@pytest.fixture(scope="module")
def tools(java: None) -> Iterator[Tools]:
    """Kafka's command line."""
    with Tools() as tools:
        yield tools


@pytest.fixture(scope="module")
def servers(tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Server]]:
    """Yield both servers, new."""
    with ApacheKafka(SETTINGS) as kafka, Tenure({**SETTINGS, **AS_KAFKAS}) as tenure:
        found = {
            name: Server(bootstrap, data, tmp_path_factory.mktemp(name))
            for name, bootstrap, data in (
                ("apache", kafka.bootstrap, kafka.log_dir),
                ("tenure", tenure.bootstrap, tenure.data_dir),
            )
        }
        for server in found.values():
            for name, content in FILES.items():
                text = json.dumps(content).replace("DATA", str(server.data))
                (server.files / f"{name}.json").write_text(text)
        yield found


def run(tools: Tools, server: Server, line: str, text: str = "") -> Done:
    """Run a command on a server."""
    script, *arguments = shlex.split(line.replace("DATA", str(server.data)).replace("FILES", str(server.files)))
    if script not in WITHOUT_ADDRESS:
        arguments = ["--bootstrap-server", server.bootstrap, *arguments]
    return tools.run(script, *arguments, text=text)


def catch_up(admin: AdminClient, mark: str) -> None:
    """Wait until Kafka's broker knows all that its controller has acknowledged.

    The controller acknowledges a change before the broker has it, and the next command asks the broker. The broker
    learns changes in their order: once it knows a new user, it knows each change before it. `mark` is that user's name.
    """
    password = UserScramCredentialUpsertion(mark, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"mark")
    admin.alter_user_scram_credentials([password])[mark].result()

    def is_known() -> bool:
        with suppress(KafkaException):
            # Asked for names, the method returns one result for each.
            cast("dict[str, Future[Any]]", admin.describe_user_scram_credentials([mark]))[mark].result()
            return True
        return False

    wait_until(is_known, "Kafka's broker follows its controller", CAUGHT_UP_S)


def comparable(done: Done, server: Server) -> Shown:
    """Remove the parts that may differ."""

    def lines(text: str) -> list[str]:
        text = text.replace(server.bootstrap, "ADDRESS").replace(str(server.data), "DATA")
        text = text.replace(str(server.files), "FILES")
        for pattern, stands_for in (
            (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}", "UUID"),
            (r"TopicId: \S{22}", "TopicId: ID"),
            (r"\b(CreateTime|LogAppendTime): \d{13}", r"\1: TIME"),
            (r"\b(crc|producerId): \d+", r"\1: NUMBER"),
            (r"\bpid-\d+|console-consumer-\d+", "NAME"),
            # DescribeTopicPartitions: see docs/start/clients.md.
            (r"\tElr: (N/A)?\tLastKnownElr: (N/A)?", ""),
            # Log lines of a class, and the code positions of a trace.
            (r"(?m)^((TRACE|DEBUG|INFO|WARN|ERROR) .*|\tat .*|\t... \d+ more|Caused by: .*)$", ""),
            # Columns are as wide as what is in them.
            (r"[ \t]+", " "),
        ):
            text = re.sub(pattern, stands_for, text)
        return sorted(line.strip() for line in text.splitlines() if line.strip())

    return done.code, lines(done.out), lines(done.err)


@pytest.fixture(scope="module")
def transcripts(tools: Tools, servers: Mapping[str, Server]) -> Mapping[str, list[Shown]]:
    """Return each command's output, by server."""
    found: dict[str, list[Shown]] = {}
    for name, server in servers.items():
        found[name] = []
        admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})
        with ExitStack() as stack:
            for step in SCRIPT:
                line, text = step if isinstance(step, tuple) else (step, "")
                if line == LIVE_FROM and len(found[name]) == SCRIPT.index(LIVE_FROM):
                    fleet = stack.enter_context(Fleet(server.bootstrap, "orders", 4))
                    members = [fleet.start("confluent-kafka", "seats", group_instance_id=seat) for seat in SEATS]
                    fleet.wait_until_shared(members)
                    for number, member in enumerate(members):
                        offset = {2 * number: (number, "")}
                        assert fleet.commit(member, offset)["event"] == "committed"
                found[name].append(comparable(run(tools, server, line, text), server))
                if name == "apache" and any(option in line for option in CHANGES):
                    catch_up(admin, f"mark-{len(found[name])}")
    return found


@pytest.mark.parametrize(
    "number", range(len(SCRIPT)), ids=[step if isinstance(step, str) else step[0] for step in SCRIPT]
)
def test_a_command_prints_the_same(transcripts: Mapping[str, list[Shown]], number: int) -> None:
    """The same exit code, output and errors on Tenure as on Apache Kafka."""
    assert transcripts["tenure"][number] == transcripts["apache"][number]


def test_all_settings_of_a_broker_are_printed(tools: Tools, servers: Mapping[str, Server]) -> None:
    """Each line that Kafka prints too is the same, but for the settings that are known to differ."""
    printed: list[dict[str, str]] = []
    for server in servers.values():
        done = run(tools, server, "configs --describe --entity-type brokers --entity-name 1 --all")
        assert done.code == 0
        printed.append(dict(re.findall(r"^ +([a-z0-9.-]+)=(.*)$", done.out, re.MULTILINE)))
    kafka, tenure = printed
    both = kafka.keys() & tenure.keys()
    assert len(both) > 70
    assert {name for name in both if kafka[name] != tenure[name]} <= set(DIFFERENT)


def test_what_java_produces_java_consumes(tools: Tools, servers: Mapping[str, Server]) -> None:
    """The consumer gets each produced record once, from compressed batches of many records."""
    for server in servers.values():
        run(tools, server, "topics --create --topic many --partitions 2")
        produced = run(
            tools,
            server,
            f"producer-perf-test --topic many --num-records {COUNT} --record-size 100 --throughput -1"
            f" --producer-props bootstrap.servers={server.bootstrap} acks=all compression.type=lz4",
        )
        assert f"{COUNT} records sent" in produced.out
        shown = run(
            tools,
            server,
            f"console-consumer --topic many --from-beginning --max-messages {COUNT}"
            " --property print.partition=true --property print.offset=true",
        )
        places = set(re.findall(r"^Partition:(\d)\tOffset:(\d+)\t", shown.out, re.MULTILINE))
        assert len(places) == COUNT
        assert sum(max(int(offset) for each, offset in places if each == index) + 1 for index in "01") == COUNT


def test_kafkas_tool_reads_the_files(tools: Tools, servers: Mapping[str, Server]) -> None:
    """Every batch of every segment is valid, and none is missing."""
    server = servers["tenure"]
    run(tools, server, "topics --create --topic dumped --partitions 1")
    run(
        tools,
        server,
        f"producer-perf-test --topic dumped --num-records {COUNT} --record-size 100 --throughput -1"
        f" --producer-props bootstrap.servers={server.bootstrap} compression.type=zstd",
    )
    segments = ",".join(str(segment) for segment in sorted((server.data / "dumped-0").glob("*.log")))
    dumped = run(tools, server, f"dump-log --deep-iteration --files {segments}")
    batches = [line for line in dumped.out.splitlines() if line.startswith("baseOffset:")]
    assert all("isvalid: true" in line for line in batches)
    assert sum(int(count) for count in re.findall(r" count: (\d+) ", dumped.out)) == COUNT


def values(text: str) -> list[dict[str, Any]]:
    """JSON values that stand one behind the other, without an end of line."""
    found = []
    while text := text.lstrip():
        value, end = json.JSONDecoder().raw_decode(text)
        found.append(value)
        text = text[end:]
    return found


def test_committed_offsets_are_read_by_kafkas_formatter(tools: Tools, servers: Mapping[str, Server]) -> None:
    """Kafka's formatter reads the committed offsets from their topic."""
    said = []
    for server in servers.values():
        run(tools, server, "topics --create --topic formatted --partitions 2")
        consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "formatted", "log_level": 0})
        consumer.commit(
            offsets=[TopicPartition("formatted", 0, 17), TopicPartition("formatted", 1, 4)], asynchronous=False
        )
        consumer.close()
        shown = run(
            tools,
            server,
            "console-consumer --topic __consumer_offsets --from-beginning --timeout-ms 5000"
            " --formatter org.apache.kafka.tools.consumer.OffsetsMessageFormatter",
        )
        ours = [each for each in values(shown.out) if each["key"]["data"]["group"] == "formatted"]
        for each in ours:
            del each["value"]["data"]["commitTimestamp"]
        said.append(sorted(ours, key=lambda each: int(each["key"]["data"]["partition"])))
    assert len(said[0]) == 2
    assert said[0] == said[1]
