"""Whether a group may change to the consumer protocol, and how it changed: each kind of point, and each stage."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from coordinator.story import migration
from coordinator.story.described import ConsumerSeat, ConsumerState, CoordinatorNode, Group, Member
from coordinator.story.migration import (
    ASSIGNORS,
    BROKER_SETTINGS,
    LIBRARIES,
    OWN_SESSION,
    ROWS,
    STAGES,
    Checked,
    Client,
    Cluster,
    Facts,
    Mark,
    Point,
    Stage,
    check,
    library_of,
)
from coordinator.story.offsets import OffsetLine
from tests.support.cases import each
from tests.support.told import entries_of, told

NODE = CoordinatorNode(1, "h", 1)
VALUES = ("45000", "60000", "1000", "classic,consumer", "bidirectional", "uniform,range")
OPEN = dict(zip(BROKER_SETTINGS, VALUES, strict=True))
KAFKA_44 = Cluster(1, 33, 1, OPEN, {OWN_SESSION: "45000"})
TENURE = Cluster(1, None, 0, OPEN, {OWN_SESSION: "45000"})
JAVA_4 = Client("apache-kafka-java 4.4.0")


def member(name: str, **said: Any) -> Member:
    """A static member of the classic protocol."""
    made = Member(f"{name}-1", name, "app", "/h", {"orders": [0]}, frozenset({"orders"}), session_timeout_ms=45_000)
    return replace(made, **said)


def group_of(*members: Member, **said: Any) -> Group:
    """A Stable group of these members."""
    return Group("g", "Stable", "consumer", "", NODE, list(members), **said)


def facts(*members: Member, **said: Any) -> Facts:
    """A Stable classic group of kafka-clients 4, cooperative-sticky, on Tenure, where `said` has nothing else."""
    group = group_of(*members)
    clients = {each.member_id: JAVA_4 for each in members}
    line = OffsetLine("orders", 0, 5, 9, members[0] if members else None)
    made = Facts(TENURE, group, "consumer", "cooperative-sticky", clients, [line], [])
    return made._replace(**said)


def point(checked: Checked, kind: str) -> Point:
    """The only point of a kind."""
    (found,) = [each for each in checked.points if each.kind == kind]
    return found


def kinds(checked: Checked, *marks: Mark) -> list[str]:
    """The kinds of the points with one of these marks."""
    return [each.kind for each in checked.points if each.mark in marks]


def test_a_group_that_nothing_keeps_back() -> None:
    """Static members, a known library, a cooperative assignor, the same session: no remark, and the roll's steps."""
    checked = check(facts(member("a"), member("b")))
    assert (checked.stage, kinds(checked, Mark.MIND, Mark.UNKNOWN, Mark.BLOCKED)) == (Stage.MAY_MOVE, [])
    assert point(checked, "clients").found == "2 members with kafka-clients 4.4.0, which has the protocol"
    assert [step.partition(" g ")[0] for step in checked.steps[:1]] == ["tenure groups wait"]
    assert "group.protocol=consumer" in checked.steps[1]
    assert checked.steps[-1].startswith("tenure migrate check g: ")


BLOCKED: Sequence[tuple[str, dict[str, Any]]] = [
    ("server_too_old", {"cluster": Cluster(0, 21, 0, {}, None)}),
    ("feature_off", {"cluster": KAFKA_44._replace(group_version=0)}),
    (
        "protocol_off",
        {"cluster": TENURE._replace(settings=OPEN | {"group.coordinator.rebalance.protocols": "classic"})},
    ),
    ("upgrade_off", {"cluster": TENURE._replace(settings=OPEN | {"group.consumer.migration.policy": "downgrade"})}),
    ("upgrade_off", {"cluster": TENURE._replace(settings=OPEN | {"group.consumer.migration.policy": "DISABLED"})}),
    ("too_many", {"cluster": TENURE._replace(settings=OPEN | {"group.consumer.max.size": "0"})}),
    ("other_type", {"protocol_type": "connect"}),
    ("streams", {"protocol_name": "stream"}),
    ("rebalancing", {"protocol_name": ""}),
    ("custom_assignor", {"protocol_name": "mine", "clients": {"a-1": JAVA_4._replace(has_data=True)}}),
    ("no_client", {"clients": {"a-1": Client("sarama v1.61.1")}}),
]


@each("kind, said", BLOCKED)
def test_one_reason_blocks(kind: str, said: dict[str, Any]) -> None:
    """Each reason blocks the group alone; its advice, if there is any, is the first step."""
    checked = check(facts(member("a"), **said))
    assert (checked.stage, kinds(checked, Mark.BLOCKED)) == (Stage.BLOCKED, [kind])
    assert not ROWS[kind].is_step or checked.steps[0] == point(checked, kind).advice


NOTED: Sequence[tuple[str, str, dict[str, Any]]] = [
    ("known_bugs", "KAFKA-21584", {"cluster": KAFKA_44}),
    ("settings_unknown", "group.consumer.migration.policy", {"cluster": TENURE._replace(settings=None)}),
    (
        "no_way_back",
        "upgrade",
        {"cluster": TENURE._replace(settings=OPEN | {"group.consumer.migration.policy": "upgrade"})},
    ),
    ("keep_range", "first one is uniform", {"protocol_name": "range"}),
    ("ask_uniform", "first one is range", {"cluster": TENURE._replace(settings=OPEN | {ASSIGNORS: "range,uniform"})}),
    ("unlike_assignor", "sticky", {"cluster": TENURE._replace(settings=OPEN | {ASSIGNORS: "range"})}),
    ("eager", "with sticky", {"protocol_name": "sticky"}),
    ("unlike_assignor", "range-by-instance", {"protocol_name": "range-by-instance"}),
    ("clients_old", "from 4.0 on", {"clients": {"a-1": Client("apache-kafka-java 3.9.1"), "b-1": JAVA_4}}),
    ("clients_classic", "1 member with aiokafka 0.14.0", {"clients": {"a-1": Client(), "b-1": JAVA_4}}),
    ("clients_mind", "seat up", {"clients": {"a-1": Client("kgo v1.22.2"), "b-1": JAVA_4}}),
    ("offsets_missing", "orders-0", {"lines": [OffsetLine("orders", 0, None, 9, None)]}),
    ("offsets_unknown", "no right", {"lines": "no right"}),
]


@each("kind, words, said", NOTED)
def test_a_remark_blocks_nothing(kind: str, words: str, said: dict[str, Any]) -> None:
    """The group may move all the same."""
    checked = check(facts(member("a", client_id="aiokafka-0.14.0"), member("b"), **said))
    assert checked.stage is Stage.MAY_MOVE
    assert words in point(checked, kind).found


def test_only_members_of_unknown_libraries_are_named_as_such() -> None:
    """A member whose library is known by what it says may have any client id."""
    clients = {"a-1": JAVA_4, "b-1": Client("something 1.0")}
    checked = check(facts(member("a", client_id="mine"), member("b", client_id="theirs"), clients=clients))
    assert point(checked, "clients_unknown").found == "the libraries of 1 member (theirs)"


@each("software, version", [("librdkafka 2..12", "2"), ("apache-kafka-java 4.0..1", "4.0"), ("kgo v1.22.", "1.22")])
def test_a_version_ends_where_it_is_no_number(software: str, version: str) -> None:
    """A client may call itself anything, and the check goes on."""
    assert library_of(software, member("a"))[1] == version
    assert check(facts(member("a"), clients={"a-1": Client(software)})).points


def test_an_assignor_of_the_server_may_have_the_name_of_its_class() -> None:
    """As Apache Kafka's setting may have it."""
    apart = "org.apache.kafka.coordinator.group.assignor."
    settings = OPEN | {ASSIGNORS: f"{apart}RangeAssignor, {apart}UniformAssignor"}
    checked = check(facts(member("a"), protocol_name="range", cluster=TENURE._replace(settings=settings)))
    assert point(checked, "assignor").found == "the server's assignor range takes the place of range"


def test_dynamic_members_and_standbys() -> None:
    """Members without instance ids move at each restart; standbys become members."""
    made = facts(member("a", group_instance_id=None), member("b"))
    checked = check(made._replace(group=group_of(*made.group.members, target_size=1)))
    assert point(checked, "dynamic").found.startswith("without group.instance.id: 1 member;")
    assert kinds(checked, Mark.MIND) == ["standbys", "dynamic"]


def test_the_session_timeout_is_the_servers() -> None:
    """If the classic session is longer, a step sets the group's own, after the broker's limit if that is lower."""
    steps = {
        wanted: check(facts(member("a"), member("b", session_timeout_ms=wanted))).steps[0]
        for wanted in (30_000, 60_000, 300_000)
    }
    setting = "tenure groups settings g --set consumer.session.timeout.ms="
    assert steps[30_000].startswith("tenure groups wait")
    assert steps[60_000] == f"{setting}60000"
    limit = "group.consumer.max.session.timeout.ms=300000"
    assert steps[300_000] == f"{setting}300000, after {limit} on each broker"
    own = TENURE._replace(own={OWN_SESSION: "60000"})
    assert "session" in kinds(check(facts(member("a", session_timeout_ms=60_000), cluster=own)), Mark.FINE)


def test_sessions_and_libraries_that_nobody_tells() -> None:
    """Apache Kafka shows neither; a client id may name the library."""
    made = facts(
        member("a", session_timeout_ms=None), member("b", session_timeout_ms=None, client_id="rdkafka"),
        member("c", client_id="aiokafka-0.14.0"), clients={}, cluster=KAFKA_44,
    )  # fmt: skip
    checked = check(made._replace(group=group_of(*made.group.members[:2])))
    assert kinds(checked, Mark.UNKNOWN) == ["clients_unknown", "clients_unknown", "session_unknown"]
    found = [each.found for each in checked.points if each.kind == "clients_unknown"]
    assert found == [
        "the libraries of 1 member (librdkafka by their client ids)",
        "the libraries of 1 member (app)",
    ]
    guessed = point(check(made), "clients_classic")
    assert guessed.found.endswith("only the classic protocol, as the client ids say")


@each(
    "software, client_id, name, version",
    [
        ("confluent-kafka-python 2.16.1-rdkafka-2.16.0", "rdkafka", "librdkafka", "2.16.0"),
        ("confluent-kafka-go v2.3.0-librdkafka-2.3.0", "x", "librdkafka", "2.3.0"),
        ("librdkafka 2.0.2", "x", "librdkafka", "2.0.2"),
        ("apache-kafka-java 3.9.1", "x", "kafka-clients", "3.9.1"),
        ("", "consumer-g-1", "kafka-clients", ""),
        ("kgo v1.22.2", "kgo", "franz-go", "1.22.2"),
        ("platformatic-kafka 1.35.0", "worker", "@platformatic/kafka", "1.35.0"),
        ("", "aiokafka-0.14.0", "aiokafka", "0.14.0"),
        ("kafka-python 3.0.12", "x", "kafka-python", "3.0.12"),
        ("", "kafka-python-3.0.12", "kafka-python", "3.0.12"),
        ("sarama v1.61.1", "x", "sarama", "1.61.1"),
        ("", "kafkajs", "kafkajs", ""),
    ],
)
def test_a_library_is_known_by_what_it_says(software: str, client_id: str, name: str, version: str) -> None:
    """These are the words of real clients; without software the default client id says it."""
    library, found, is_guess = library_of(software, member("a", client_id=client_id))
    assert library is not None
    assert (library.name, found, is_guess) == (name, version, not software)
    assert library_of("something 1.0", member("a"))[0] is None


def consumers(*members: Member, classic: int = 0) -> Facts:
    """A group of the consumer protocol, whose last members are classic."""
    seats = [
        replace(each, seat=ConsumerSeat(3, {}, None, is_classic=index >= len(members) - classic))
        for index, each in enumerate(members)
    ]
    made = facts(*seats, protocol_name="uniform", clients={})
    return made._replace(group=group_of(*seats, consumer=ConsumerState(3, 3)))


CHANGED = told("group_converted", at_ms=100, kind="consumer", members=2)


def test_a_group_on_its_way() -> None:
    """The members that are still classic are named, with what there is to do for them."""
    checked = check(consumers(member("a"), member("b"), classic=1)._replace(entries=entries_of(CHANGED)))
    assert (checked.stage, checked.steps != []) == (Stage.UNDER_WAY, True)
    assert point(checked, "under_way").found == "1 of 2 members are of the consumer protocol; classic: b"


def test_seats_that_stayed_and_seats_that_moved() -> None:
    """Only events since the group changed count; a newcomer's first partition didn't move."""
    before = told(
        "rebalance_ended",
        at_ms=50,
        began_ms=40,
        generation_before=2,
        causes=[{}],
        moved_partitions=9,
    )
    back = told(
        "member_replaced", at_ms=200, group_instance_id="a", member_id="a-2", old_member_id="a-1", state="Stable"
    )
    made = consumers(member("a"), member("b"))
    stayed = check(made._replace(entries=entries_of(before, CHANGED, back)))
    assert (stayed.stage, stayed.steps) == (Stage.MOVED, [])
    assert point(stayed, "seats_kept").found.endswith(
        "each topic partition stayed with its member; 1 return of static members"
    )
    moves = [
        {"topic": "orders", "partition": 3, "from": "a-1", "to": "b-1"},
        {"topic": "orders", "partition": 4, "from": None, "to": "b-1"},
    ]
    moved = told(
        "rebalance_ended",
        at_ms=300,
        began_ms=250,
        generation_before=3,
        generation=4,
        causes=[{}],
        moved=moves,
        moved_partitions=1,
    )
    refused = told(
        "client_refused", at_ms=400, client={"client_id": "late", "client_host": "/h"}, why="full", until="it is not"
    )
    after = check(made._replace(entries=entries_of(CHANGED, moved, refused)))
    assert (
        point(after, "seats_moved").found
        == "1 topic partition went to another member, in 1 rebalance after the change: orders-3"
    )
    assert point(after, "refused").found == "late was refused after the change: full"


def test_a_history_that_nobody_tells() -> None:
    """The stage is known without the right to read the log of groups, and without its records."""
    for entries, why in (("no right", "no right"), ([], "no record tells of its change")):
        checked = check(consumers(member("a"))._replace(entries=entries))
        assert (checked.stage, point(checked, "history_unknown").found) == (
            Stage.MOVED,
            f"how the group changed: {why}",
        )


def test_an_empty_group_has_no_roll() -> None:
    """It changes with the first consumer."""
    checked = check(facts(protocol_name="", protocol_type=""))
    assert (checked.stage, kinds(checked, Mark.FINE)[:2], checked.steps) == (
        Stage.MAY_MOVE,
        ["server_ready", "no_members"],
        [],
    )


@each(
    "level, name",
    [
        (21, "Apache Kafka 3.9"),
        (33, "Apache Kafka 4.4"),
        (31, "Apache Kafka after 4.3"),
        (14, "Apache Kafka before 3.9"),
    ],
)
def test_a_release_is_known_by_its_metadata_version(level: int, name: str) -> None:
    """A level between two known releases is named after the lower one."""
    assert KAFKA_44._replace(level=level).server == name


def test_each_kind_is_made_somewhere() -> None:
    """Each row of the table has a rule that makes it, and each stage has words."""
    source = Path(migration.__file__).read_text()
    made = set(re.findall(r'yield\s+\(?\s*"(\w+)"', source)) | set(re.findall(r'else \("(\w+)"', source))
    assert made == set(ROWS)
    assert set(STAGES) == set(Stage)
    assert len({library.name for library in LIBRARIES}) == len(LIBRARIES)
