"""Tools on groups of both protocols, Kafka 4.4.0's and `tenure groups`, on Kafka 4.4.0 and on Tenure: the same output.

The members are raw clients, which beat before each command. Nothing in what is printed differs but the servers'
addresses and the ids that they give to classic members. Kafka's console consumer is a member too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest

from coordinator.cli.groups import app
from protocol.messages import ConsumerGroupHeartbeatRequest, MetadataRequest
from tests.cli.conftest import run_app
from tests.interop.java.tools import Done, Tools
from tests.server.harness import assignment, subscription
from tests.support.apache import AT_ONCE, VERSION_44, ApacheKafka
from tests.support.batches import batch
from tests.support.patience import WITHIN_S
from tests.support.raw import Connection, ask
from tests.support.requests import commit_request, join_request, produce_request, sync_request, topics_request
from tests.support.tenure import Tenure, wait_until

pytestmark = [pytest.mark.oracle, pytest.mark.together]

TOPIC, REGEX_TOPIC = "orders", "prices"
RECORDS = 5
ODD_OFFSETS = (-1, -2, 2**63 - 1)


class Member:
    """A member of a group of the consumer protocol."""

    def __init__(self, port: int, group_id: str, member_id: str, fields: dict[str, Any]) -> None:
        self.group_id = group_id
        self._connection = Connection(port, f"client-of-{member_id}")
        self.member_id = member_id
        self.epoch = 0
        self._fields = fields
        self._owned: list[Any] = []
        self.beat()

    def beat(self, epoch: int | None = None) -> Any:
        """Send a heartbeat, and take the assignment."""
        first: dict[str, Any] = {} if self.epoch else {"rebalance_timeout_ms": 60_000, **self._fields}
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch if epoch is None else epoch,
            instance_id=self._fields.get("instance_id"),
            topic_partitions=self._owned if epoch is None else None,
            **{name: value for name, value in first.items() if name != "instance_id"},
        )
        answer = self._connection.ask(request, 1)
        assert answer.error_code == 0, answer
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self._owned = [
                ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=each.topic_id, partitions=each.partitions)
                for each in answer.assignment.topic_partitions
            ]
        return answer

    def close(self) -> None:
        """Let go of the connection."""
        self._connection.close()


class Server:
    """One of the two, with its members."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.members: list[Member] = []

    def ask(self, request: Any, version: int) -> Any:
        """The answer."""
        return ask(self.port, request, version)

    def prepare(self) -> None:
        """Two topics with records, a classic group with offsets, one with a member, and a group of three members."""
        for name, partitions in ((TOPIC, 3), (REGEX_TOPIC, 1)):
            self.ask(topics_request({name: partitions}), 5)
            asked = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name)])
            wait_until(partial(self.has_topic, asked), "topic", WITHIN_S)
        records = batch([(b"key", b"value", 1_700_000_000_000)] * RECORDS)
        self.ask(produce_request({(TOPIC, index): records for index in range(3)}), 9)
        for group in ("readers", "simple"):
            self.commit(group, 0, 1)
        self.commit("odd", *ODD_OFFSETS)
        self.join_classic("classics")
        for group_id, member_id, fields in (
            ("mixed", "first", {"subscribed_topic_names": [TOPIC]}),
            ("readers", "static-0", {"instance_id": "seat-0", "subscribed_topic_names": [TOPIC], "rack_id": "rack"}),
            ("readers", "dynamic-1", {"subscribed_topic_names": [TOPIC], "server_assignor": "range"}),
            ("readers", "regex-2", {"subscribed_topic_names": [TOPIC], "subscribed_topic_regex": "pri.*"}),
        ):
            self.members.append(Member(self.port, group_id, member_id, fields))
        self.join_classic("mixed")
        wait_until(self.is_settled, "the members are settled", WITHIN_S)

    def has_topic(self, asked: MetadataRequest) -> bool:
        """Whether the topic has a leader."""
        return bool(self.ask(asked, 4).topics[0].error_code == 0)

    def is_settled(self) -> bool:
        """Whether the members of each group are at the same epoch; each beats once."""
        answers = [(member.group_id, member.beat()) for member in self.members]
        epochs = {(group_id, answer.member_epoch) for group_id, answer in answers}
        are_alike = len(epochs) == len({group_id for group_id, _ in answers})
        return are_alike and all(answer.assignment is None for _, answer in answers)

    def commit(self, group: str, *offsets: int) -> None:
        """Commit these offsets of the topic partitions from 0 on, from outside."""
        self.ask(commit_request(group, {(TOPIC, index): offset for index, offset in enumerate(offsets)}), 8)

    def join_classic(self, group_id: str) -> None:
        """A static member of the classic protocol joins."""
        seat, protocols = "classic-seat", [("range", subscription(TOPIC))]
        with Connection(self.port, "classic") as connection:
            join = join_request(group_id, instance=seat, session_ms=300_000, rebalance_ms=300_000, protocols=protocols)
            joined = connection.ask(join, 5)
            given = {joined.member_id: assignment(TOPIC, 0, 1, 2)}
            connection.ask(sync_request(group_id, joined.generation_id, joined.member_id, seat, given), 3)


LEAVES = "the members leave"
GROUPS = "consumer-groups"
COMMANDS = (
    f"{GROUPS} --list",
    f"{GROUPS} --list --type",
    f"{GROUPS} --list --type consumer",
    f"{GROUPS} --list --type classic",
    f"{GROUPS} --list --type Consumer,classic",
    f"{GROUPS} --list --type nonsense",
    f"{GROUPS} --list --state",
    f"{GROUPS} --list --state stable --type consumer",
    f"{GROUPS} --list --state Reconciling",
    f"{GROUPS} --list --state Assigning,Empty --type",
    *(
        f"{GROUPS} --describe --group {group}{what}{verbose}"
        for group in ("readers", "simple", "classics", "mixed", "nowhere")
        for what in ("", " --offsets", " --members", " --state")
        for verbose in ("", " --verbose")
    ),
    f"{GROUPS} --describe --all-groups --state",
    f"{GROUPS} --describe --all-groups --members --verbose",
    f"{GROUPS} --describe --all-groups --offsets --verbose",
    "groups --list",
    "groups --list --consumer",
    "groups --list --group-type consumer",
    "groups --list --group-type classic --protocol consumer",
    "tenure list",
    "tenure describe readers mixed classics --members",
    "tenure describe --all --state",
    "tenure describe readers mixed",
    "tenure describe nowhere",
    (ODD_BY_KAFKA := f"{GROUPS} --describe --group odd --offsets"),
    (ODD_BY_TENURE := "tenure describe odd"),
    f"{GROUPS} --reset-offsets --group readers --topic {TOPIC} --to-earliest --dry-run",
    f"{GROUPS} --reset-offsets --group readers --topic {TOPIC} --to-earliest --execute",
    f"{GROUPS} --delete --group readers",
    f"{GROUPS} --delete-offsets --group readers --topic {TOPIC}",
    f"{GROUPS} --delete-offsets --group readers --topic nowhere",
    (
        f"console-consumer --topic {TOPIC} --from-beginning --max-messages 15 --group java --timeout-ms 20000"
        " --command-property group.protocol=consumer"
    ),
    f"{GROUPS} --describe --group java --offsets",
    f"{GROUPS} --describe --group java --state",
    LEAVES,
    f"{GROUPS} --describe --group readers --state --verbose",
    f"{GROUPS} --describe --group readers --members --verbose",
    f"{GROUPS} --describe --group readers --offsets --verbose",
    f"{GROUPS} --reset-offsets --group readers --topic {TOPIC} --to-earliest --dry-run",
    f"{GROUPS} --reset-offsets --group readers --topic {TOPIC} --to-latest --execute",
    f"{GROUPS} --reset-offsets --group readers --topic {TOPIC}:1 --shift-by -2 --execute",
    f"{GROUPS} --reset-offsets --group readers --all-topics --to-current --export --dry-run",
    f"{GROUPS} --describe --group readers --offsets",
    f"{GROUPS} --delete-offsets --group readers --topic {TOPIC}:1",
    f"{GROUPS} --describe --group readers --offsets",
    f"{GROUPS} --list --type consumer --state",
    f"{GROUPS} --delete --group readers --group nowhere",
    f"{GROUPS} --list --type",
    f"{GROUPS} --describe --group readers --state",
)


@pytest.fixture(scope="module")
def printed(kafka_is_here: None) -> Iterator[dict[str, list[tuple[int, list[str], list[str]]]]]:
    """What each command prints, by server."""
    settings = {
        "offsets.topic.num.partitions": "4",
        "group.initial.rebalance.delay.ms": "0",
        "node.id": "1",
        "log.retention.ms": "-1",  # the records are old: on a slow machine, Kafka deletes them meanwhile
        **AT_ONCE,
    }
    found: dict[str, list[tuple[int, list[str], list[str]]]] = {}
    with ExitStack() as stack:
        kafka = stack.enter_context(ApacheKafka(settings, version=VERSION_44))
        tenure = stack.enter_context(Tenure({**settings, "tenure.events.enable": "false"}))
        tools = stack.enter_context(Tools(VERSION_44))
        for name, port in (("kafka", kafka.port), ("tenure", tenure.port)):
            server = Server(port)
            server.prepare()
            found[name] = [run(tools, server, command) for command in COMMANDS]
        yield found


def run(tools: Tools, server: Server, command: str) -> tuple[int, list[str], list[str]]:
    """Code, output and errors of a command, without what may differ."""
    if command == LEAVES:
        for member in server.members:
            member.beat(-1)
            member.close()
        server.members.clear()
    for member in server.members:
        member.beat()
    if command == LEAVES:
        return 0, [], []
    bootstrap = f"127.0.0.1:{server.port}"
    script, *arguments = command.split()
    if script == "tenure":
        own = run_app(app, *arguments, "--bootstrap-server", bootstrap)
        done = Done(own.code, own.out, own.err)
    else:
        done = tools.run(script, "--bootstrap-server", bootstrap, *arguments)

    def lines(text: str) -> list[str]:
        text = text.replace(bootstrap, "ADDRESS")
        for pattern, stands_for in (
            (r"\bclassic-seat-[0-9A-Za-z_-]{22,36}", "classic-seat-ID"),
            (r"(?<=\s)[0-9A-Za-z_-]{22}(?=\s)", "ID"),
            (r"(?m)^(\tat .*|\t... \d+ more|Caused by: .*|.* ERROR Reconfiguration failed: .*)$", ""),
            (r"[ \t]+", " "),
        ):
            text = re.sub(pattern, stands_for, text)
        return sorted(line.strip() for line in text.splitlines() if line.strip())

    return done.code, lines(done.out), lines(done.err)


@pytest.mark.parametrize("number", range(len(COMMANDS)), ids=COMMANDS)
def test_a_command_prints_the_same(printed: dict[str, list[tuple[int, list[str], list[str]]]], number: int) -> None:
    """The same exit code, output and errors."""
    assert printed["tenure"][number] == printed["kafka"][number]


@pytest.mark.parametrize("server", ["kafka", "tenure"])
def test_odd_offsets_are_printed_the_same(
    printed: dict[str, list[tuple[int, list[str], list[str]]]], server: str
) -> None:
    """`tenure groups describe` prints an offset below 0, and the highest one, as Kafka's tool does."""
    by_tool = [
        [line.split()[:6] for line in printed[server][COMMANDS.index(command)][1] if line.startswith("odd ")]
        for command in (ODD_BY_KAFKA, ODD_BY_TENURE)
    ]
    highest = 2**63 - 1
    assert by_tool[0] == by_tool[1]
    assert [line[3:] for line in by_tool[0]] == [
        ["-", "5", "-"],
        ["-", "5", "-"],
        [str(highest), "5", str(5 - highest)],
    ]
