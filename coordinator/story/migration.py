"""Whether a group may change to the consumer protocol (KIP-848) without losing seats or offsets, and how it changed.

`check` looks at the cluster, the group, its members' libraries and the timeline, and makes points: each has a kind, a
mark, a sentence, and advice. ROWS has the words of every kind, LIBRARIES the known client libraries. The stage follows
from the points, and the steps are the advice of some of them, in front of the roll itself.

House rule: a kind is a row of ROWS, and a function yields it with its words. A fact that no answer has is UNKNOWN.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from msgspec import Struct

from coordinator.group.notes import CONSUMER as OF_CONSUMER
from coordinator.story.counts import number_text
from coordinator.story.described import Group, Member
from coordinator.story.entries import Entry, Rebalance, Return
from coordinator.story.events import ClientRefused, GroupConverted
from coordinator.story.offsets import OffsetLine
from coordinator.text import duration_text, names_text, time_text
from protocol.consumer import CONSUMER

READY_SINCE = 1
"""The first version of ConsumerGroupHeartbeat after Kafka's preview: that of Kafka 4.0."""

RELEASES = {21: "3.9", 25: "4.0", 30: "4.3", 33: "4.4"}
"""Newest metadata.version that a release of Apache Kafka supports -> the release."""

SERVER_ASSIGNOR = {"range": "range", "roundrobin": "uniform", "sticky": "uniform", "cooperative-sticky": "uniform"}
"""The assignor of a consumer -> the assignor of the server that does the same or more."""

COOPERATIVE, STREAMS_ASSIGNOR = "cooperative-sticky", "stream"

SESSION, SESSION_MAX, SIZE_MAX = (
    "group.consumer.session.timeout.ms", "group.consumer.max.session.timeout.ms", "group.consumer.max.size",
)  # fmt: skip
PROTOCOLS, POLICY, ASSIGNORS = (
    "group.coordinator.rebalance.protocols", "group.consumer.migration.policy", "group.consumer.assignors",
)  # fmt: skip
BROKER_SETTINGS = (SESSION, SESSION_MAX, SIZE_MAX, PROTOCOLS, POLICY, ASSIGNORS)
OWN_SESSION = "consumer.session.timeout.ms"
"""The settings that count: of a broker, and of a group."""


class Mark(StrEnum):
    """The weight of a point."""

    FINE = "fine"
    MIND = "mind"
    UNKNOWN = "unknown"
    BLOCKED = "blocked"


class Stage(StrEnum):
    """A group's place on its way to the consumer protocol."""

    MAY_MOVE = "may_move"
    BLOCKED = "blocked"
    UNDER_WAY = "under_way"
    MOVED = "moved"


STAGES = {
    Stage.MAY_MOVE: "may move to group.protocol=consumer",
    Stage.BLOCKED: "can't move to group.protocol=consumer yet",
    Stage.UNDER_WAY: "is on its way to group.protocol=consumer",
    Stage.MOVED: "has moved to group.protocol=consumer",
}


class Library(NamedTuple):
    """A client library. software, client_id: as ApiVersions and default client ids name it; a group is the version.

    since: its first release with the protocol, or the oldest one that was tried; None for none. mind: a remark.
    """

    name: str
    software: str | None
    client_id: str | None
    since: tuple[int, ...] | None
    mind: str = ""


NUMBER = r"(\d+(?:\.\d+)*)"
STAYS_AWAY = "closing it gives its seat up, so each restart in the consumer protocol moves partitions"
LIBRARIES = (
    Library(
        "librdkafka", rf"(?:confluent-kafka-\S+ \S*rdkafka-|librdkafka )v?{NUMBER}.*", "rdkafka", (2, 12),
        "a subscription that begins with ^ is resolved by the server, in the syntax of RE2",
    ),
    Library("kafka-clients", rf"apache-kafka-java {NUMBER}.*", r"consumer-.+-\d+", (4, 0)),
    Library("franz-go", rf"kgo v?{NUMBER}.*", "kgo", (1, 22), STAYS_AWAY),
    Library("@platformatic/kafka", rf"platformatic-kafka {NUMBER}.*", None, (1, 35), STAYS_AWAY),
    Library("aiokafka", None, rf"aiokafka-{NUMBER}.*", None),
    Library("kafka-python", rf"kafka-python {NUMBER}.*", rf"kafka-python-{NUMBER}.*", None),
    Library("sarama", rf"sarama v?{NUMBER}.*", "sarama", None),
    Library("kafkajs", None, "kafkajs", None),
)  # fmt: skip


class Row(NamedTuple):
    """The words of a kind. is_step: whether the advice is something to do before the roll."""

    mark: Mark
    found: str
    advice: str = ""
    is_step: bool = False


FINE, MIND, UNKNOWN, BLOCKED = Mark
ROWS: Mapping[str, Row] = {
    "server_ready": Row(FINE, "{server} has the consumer protocol"),
    "server_too_old": Row(
        BLOCKED, "{server} has the consumer protocol as a preview at most", "update all brokers to Apache Kafka 4", True
    ),
    "feature_off": Row(
        BLOCKED, "the feature group.version is at {level}",
        "kafka-features.sh --bootstrap-server HOST:PORT upgrade --feature group.version=1", True,
    ),
    "protocol_off": Row(BLOCKED, PROTOCOLS + " is {value}", "add consumer to it on each broker", True),
    "upgrade_off": Row(
        BLOCKED, POLICY + " is {value}, so a group with members stays classic",
        "set it to bidirectional on each broker, or stop all members and start them with the other protocol", True,
    ),
    "no_way_back": Row(MIND, POLICY + " is {value}, so a group with members can't go back"),
    "settings_unknown": Row(
        UNKNOWN, "{names}: the user lacks DescribeConfigs on the cluster",
        "look at the properties of the brokers, or let the user read their settings",
    ),
    "known_bugs": Row(
        MIND, "Apache Kafka 4.4.0 has KAFKA-21581: a consumer that comes in the group's first rebalance ends with "
        "UNKNOWN_SERVER_ERROR; and KAFKA-21582, KAFKA-21584: a change in the middle of a rebalance may leave "
        "partitions without a member. Other releases weren't tried",
        "begin while the group is Stable, and let `tenure doctor` look for partition_ownerless after the first one",
    ),
    "no_members": Row(FINE, "the group has no members: it changes with the first consumer that comes"),
    "other_type": Row(BLOCKED, "its protocol type is {protocol_type}, and only groups of consumers can change"),
    "streams": Row(
        BLOCKED, "it is a group of Kafka Streams",
        "Kafka Streams has a protocol of its own: group.protocol=streams, of Apache Kafka 4.2 and later",
    ),
    "rebalancing": Row(
        BLOCKED, "the group is {state}, and shows its assignor and assignments only while it is Stable",
        "tenure groups wait {group} --members {members}", True,
    ),
    "custom_assignor": Row(
        BLOCKED, "its assignor {assignor} puts data of its own into assignments: coordinators refuse to change such a "
        "group (GROUP_ID_NOT_FOUND)", "roll the consumers to an assignor of Kafka's own first", True,
    ),
    "unlike_assignor": Row(
        MIND, "no assignor of the server is like {assignor}: the next rebalance after the change moves partitions"
    ),
    "assignor": Row(FINE, "the server's assignor {theirs} takes the place of {assignor}"),
    "keep_range": Row(
        MIND, "its assignor is range, and the server's first one is {first}",
        "to keep range, set group.remote.assignor=range in the consumers, which costs one rebalance", True,
    ),
    "ask_uniform": Row(
        MIND, "its assignor is {assignor}, and the server's first one is {first}",
        "to have uniform, which is like it, set group.remote.assignor=uniform in the consumers", True,
    ),
    "eager": Row(
        MIND, "with {assignor}, a rebalance takes all partitions from each member; in the consumer protocol it takes "
        "those that move", "see that listeners for revoked partitions don't count on all of them",
    ),
    "clients": Row(FINE, "{members} with {library}, which has the protocol{guess}"),
    "clients_old": Row(
        MIND, "{members} with {library}, which has the protocol from {since} on{guess}", "update {library}", True
    ),
    "clients_classic": Row(
        MIND, "{members} with {library}, which has only the classic protocol{guess}",
        "nothing needs to be done if they stay classic: both kinds share the group",
    ),
    "clients_mind": Row(MIND, "{library}: {mind}"),
    "clients_unknown": Row(
        UNKNOWN, "the libraries of {members}",
        "ask the owners; on Apache Kafka, JMX has them for each connection: clientSoftwareName and "
        "clientSoftwareVersion of kafka.server:type=socket-server-metrics",
    ),
    "no_client": Row(BLOCKED, "no member has a library with the consumer protocol", "change the library first", True),
    "static": Row(FINE, "static: {members}; each keeps its seat if its process ends before the next one starts"),
    "dynamic": Row(MIND, "without group.instance.id: {members}; each restart moves partitions, as it does at present"),
    "session": Row(FINE, "session timeouts become {new}; at present {old}"),
    "session_shorter": Row(
        MIND, "session timeouts of {old} become {new}: a restart that takes longer moves partitions",
        "tenure groups settings {group} --set " + OWN_SESSION + "={wanted_ms}{limit}", True,
    ),
    "session_unknown": Row(
        UNKNOWN, "the session timeouts of the members; they become {new}",
        "compare with session.timeout.ms of the consumers, which has no effect in the consumer protocol",
    ),
    "too_many": Row(BLOCKED, "{members}, and " + SIZE_MAX + " is {value}", "raise it on each broker", True),
    "standbys": Row(MIND, "target.group.size has no effect in the consumer protocol: standbys become members"),
    "topics": Row(FINE, "{topics}: the user of each consumer needs Describe on them, which Read brings"),
    "offsets": Row(FINE, "committed offsets, which stay: {partitions}"),
    "offsets_missing": Row(
        MIND, "nothing is committed for {partitions}", "there auto.offset.reset decides where consumers begin"
    ),
    "offsets_unknown": Row(UNKNOWN, "committed offsets: {why}"),
    "under_way": Row(MIND, "{moved} of {all} members are of the consumer protocol; classic: {classic}"),
    "moved": Row(FINE, "all members are of the consumer protocol: {all}"),
    "began": Row(FINE, "the group changed at {at}"),
    "seats_kept": Row(FINE, "each topic partition stayed with its member; {returns} of static members"),
    "seats_moved": Row(
        MIND, "{partitions} went to another member, in {rebalances} after the change: {moves}",
        "`tenure explain {group}` has the causes",
    ),
    "refused": Row(MIND, "{client} was refused after the change: {why}", "it may come again when {until}"),
    "history_unknown": Row(UNKNOWN, "how the group changed: {why}"),
}  # fmt: skip

WAIT = "tenure groups wait {group} --members {members}"
RESTART = (
    "restart one consumer with group.protocol=consumer, and without session.timeout.ms, heartbeat.interval.ms and "
    "partition.assignment.strategy; group.id and group.instance.id stay, and the old process ends first"
)
LOOK_BACK = (
    "tenure migrate check {group}: tells whether partitions moved. The way back is the same roll with "
    "group.protocol=classic"
)
ROLL = (WAIT, RESTART, f"{WAIT}, then the next consumer", LOOK_BACK)


class Cluster(NamedTuple):
    """The part of a cluster that counts. The lowest number of all nodes, and the settings of the coordinator.

    heartbeat: the newest version of ConsumerGroupHeartbeat, -1 without it. level: the newest metadata.version that it
    supports; None for a server that isn't Apache Kafka. group_version: as the cluster finalized it. settings: of the
    broker, own: of the group; None if the user may not read them.
    """

    heartbeat: int
    level: int | None
    group_version: int
    settings: Mapping[str, str] | None
    own: Mapping[str, str] | None

    @property
    def server(self) -> str:
        """Its name, as far as it is known."""
        if self.level is None:
            return "the server"
        below = [RELEASES[level] for level in RELEASES if level <= self.level]
        exactly = RELEASES.get(self.level)
        return f"Apache Kafka {exactly or f'after {below[-1]}' if below else f'before {RELEASES[min(RELEASES)]}'}"

    def setting(self, name: str) -> str:
        """A setting of the broker; empty if it isn't known."""
        return (self.settings or {}).get(name, "")


class Client(NamedTuple):
    """The words of a member about itself. software: of ApiVersions. has_data: in its assignment, of its assignor."""

    software: str = ""
    has_data: bool = False


class Facts(NamedTuple):
    """All that a check looks at.

    clients: by member id. lines: the group's offsets, or why they aren't known. entries: its timeline, or likewise.
    """

    cluster: Cluster
    group: Group
    protocol_type: str
    protocol_name: str
    clients: Mapping[str, Client]
    lines: Sequence[OffsetLine] | str
    entries: Sequence[Entry] | str


class Point(Struct, frozen=True):
    """A thing to know."""

    mark: Mark
    kind: str
    found: str
    advice: str


class Checked(Struct, frozen=True):
    """The answer. steps: in their order; none for a group that has moved."""

    group_id: str
    stage: Stage
    points: list[Point]
    steps: list[str]


def check(facts: Facts) -> Checked:
    """Look at a group."""
    group = facts.group
    classic = [member for member in group.members if member.seat is None or member.seat.is_classic]
    is_consumer = group.consumer is not None
    if is_consumer:
        kinds = [*_rolled(facts, classic), *(_members(facts, classic) if classic else ()), *_offsets(facts)]
    else:
        kinds = [*_server(facts.cluster), *_group(facts), *_members(facts, classic), *_offsets(facts)]
    said = {"group": group.group_id, "members": str(len(group.members))}
    points = [
        Point(row.mark, kind, row.found.format_map(said | words), row.advice.format_map(said | words))
        for kind, words in kinds
        for row in (ROWS[kind],)
    ]
    if is_consumer:
        stage = Stage.UNDER_WAY if classic else Stage.MOVED
    else:
        stage = Stage.BLOCKED if any(point.mark is BLOCKED for point in points) else Stage.MAY_MOVE
    first = [point.advice for point in points if ROWS[point.kind].is_step]
    roll = [step.format_map(said) for step in ROLL if group.members]
    return Checked(group.group_id, stage, points, [] if stage is Stage.MOVED else [*first, *roll])


Kinds = Iterator[tuple[str, dict[str, Any]]]
"""A kind with its words."""


def _server(cluster: Cluster) -> Kinds:
    if cluster.heartbeat < READY_SINCE:
        yield "server_too_old", {"server": cluster.server}
        return
    yield "server_ready", {"server": cluster.server}
    if cluster.level is not None:
        if cluster.group_version < 1:
            yield "feature_off", {"level": cluster.group_version}
        yield "known_bugs", {}
    if cluster.settings is None:
        yield "settings_unknown", {"names": ", ".join(BROKER_SETTINGS)}
        return
    protocols, policy = cluster.setting(PROTOCOLS), cluster.setting(POLICY).lower()
    if CONSUMER not in protocols.split(","):
        yield "protocol_off", {"value": protocols}
    if policy in {"disabled", "downgrade"}:
        yield "upgrade_off", {"value": policy}
    if policy == "upgrade":
        yield "no_way_back", {"value": policy}


def _group(facts: Facts) -> Kinds:
    group, assignor = facts.group, facts.protocol_name
    if not group.members:
        yield "no_members", {}
        return
    if facts.protocol_type != CONSUMER:
        yield "other_type", {"protocol_type": facts.protocol_type}
        return
    if group.target_size:
        yield "standbys", {}
    if not assignor:
        yield "rebalancing", {"state": group.state}
        return
    if assignor == STREAMS_ASSIGNOR:
        yield "streams", {}
    elif any(client.has_data for client in facts.clients.values()):
        yield "custom_assignor", {"assignor": assignor}
    elif assignor not in SERVER_ASSIGNOR:
        yield "unlike_assignor", {"assignor": assignor}
    else:
        theirs = SERVER_ASSIGNOR[assignor]
        offered = [simple_name(each) for each in facts.cluster.setting(ASSIGNORS).split(",") if each]
        if offered and theirs not in offered:
            yield "unlike_assignor", {"assignor": assignor}
        elif offered and theirs != offered[0] and theirs == "range":
            yield "keep_range", {"first": offered[0]}
        elif offered and theirs != offered[0]:
            yield "ask_uniform", {"assignor": assignor, "first": offered[0]}
        else:
            yield "assignor", {"assignor": assignor, "theirs": theirs}
        if assignor != COOPERATIVE:
            yield "eager", {"assignor": assignor}
    topics = {topic for member in group.members for topic in member.subscription or ()}
    yield "topics", {"topics": names_text(sorted(topics))}


def simple_name(assignor: str) -> str:
    """The name of an assignor of the server. Apache Kafka takes the names of its classes too."""
    return assignor.strip().rpartition(".")[2].removesuffix("Assignor").lower()


def _members(facts: Facts, members: Sequence[Member]) -> Kinds:
    if not members or facts.protocol_type != CONSUMER or facts.protocol_name == STREAMS_ASSIGNOR:
        return
    yield from _clients(facts, members)
    static = sum(member.group_instance_id is not None for member in members)
    if static:
        yield "static", {"members": number_text(static, "member")}
    if static < len(members):
        yield "dynamic", {"members": number_text(len(members) - static, "member")}
    yield from _sessions(facts, members)
    limit = facts.cluster.setting(SIZE_MAX)
    if limit and len(members) > int(limit):
        yield "too_many", {"members": number_text(len(members), "member"), "value": limit}


def _clients(facts: Facts, members: Sequence[Member]) -> Kinds:
    alike: dict[tuple[Library | None, str, bool], list[Member]] = {}
    for member in members:
        software = facts.clients.get(member.member_id, Client()).software
        alike.setdefault(library_of(software, member), []).append(member)
    able = False
    for (library, version, is_guess), those in sorted(alike.items(), key=lambda each: str(each[0])):
        many = number_text(len(those), "member")
        if library is None or (library.since and not version):
            able = True
            named = names_text(sorted({member.client_id for member in those}))
            what = f" ({library.name} by their client ids)" if library else f" ({named})"
            yield "clients_unknown", {"members": many + what}
            continue
        words = {"members": many, "library": f"{library.name} {version}".strip()}
        words["guess"] = ", as the client ids say" if is_guess else ""
        if library.since is None:
            yield "clients_classic", words
        elif tuple(map(int, version.split("."))) < library.since:
            yield "clients_old", words | {"since": ".".join(map(str, library.since))}
        else:
            able = True
            yield "clients", words
            if library.mind:
                yield "clients_mind", {"library": library.name, "mind": library.mind}
    if not able:
        yield "no_client", {}


def library_of(software: str, member: Member) -> tuple[Library | None, str, bool]:
    """The library of a member, its version, and whether only the client id says so."""
    for text, is_guess in ((software, False), (member.client_id, True)):
        for library in LIBRARIES:
            pattern = library.client_id if is_guess else library.software
            if text and pattern and (named := re.fullmatch(pattern, text)):
                return library, next(iter(named.groups()), ""), is_guess
    return None, "", True


def _sessions(facts: Facts, members: Sequence[Member]) -> Kinds:
    cluster = facts.cluster
    text = (cluster.own or {}).get(OWN_SESSION) or cluster.setting(SESSION)
    new = duration_text(int(text)) if text else SESSION
    known = [member.session_timeout_ms for member in members if member.session_timeout_ms is not None]
    if not known or not text:
        yield "session_unknown", {"new": new}
        return
    wanted = max(known)
    words = {"new": new, "old": " to ".join(map(duration_text, sorted({min(known), wanted})))}
    most = cluster.setting(SESSION_MAX)
    limit = f", after {SESSION_MAX}={wanted} on each broker" if most and wanted > int(most) else ""
    longer = {"wanted_ms": wanted, "limit": limit}
    yield ("session_shorter", words | longer) if wanted > int(text) else ("session", words)


def _offsets(facts: Facts) -> Kinds:
    if isinstance(facts.lines, str):
        yield "offsets_unknown", {"why": facts.lines}
        return
    placed = [line for line in facts.lines if line.topic is not None]
    missing = [f"{line.topic}-{line.partition}" for line in placed if line.current_offset is None]
    if len(missing) < len(placed):
        yield "offsets", {"partitions": number_text(len(placed) - len(missing), "topic partition")}
    if missing:
        yield "offsets_missing", {"partitions": names_text(missing)}


def _rolled(facts: Facts, classic: Sequence[Member]) -> Kinds:
    """The progress of the roll, and the events since it began."""
    everybody = len(facts.group.members)
    if classic:
        names = [member.group_instance_id or member.client_id for member in classic]
        yield "under_way", {"moved": everybody - len(classic), "all": everybody, "classic": names_text(names)}
    else:
        yield "moved", {"all": everybody}
    if isinstance(facts.entries, str):
        yield "history_unknown", {"why": facts.entries}
        return
    places = [
        at
        for at, entry in enumerate(facts.entries)
        if isinstance(entry.event, GroupConverted) and entry.event.kind == OF_CONSUMER
    ]
    if not places:
        yield "history_unknown", {"why": "no record tells of its change"}
        return
    since = facts.entries[places[-1] :]
    yield "began", {"at": time_text(since[0].at_ms)}
    ends = [entry.ended for entry in since if isinstance(entry, Rebalance) and entry.ended is not None]
    moves = [move for end in ends for move in end.moved or () if move.before is not None and move.after is not None]
    count = sum(end.moved_partitions or 0 for end in ends)
    if count:
        yield (
            "seats_moved",
            {
                "partitions": number_text(count, "topic partition"),
                "rebalances": number_text(sum(bool(end.moved_partitions) for end in ends), "rebalance"),
                "moves": names_text([f"{move.topic}-{move.partition}" for move in moves], count),
            },
        )
    else:
        returns = sum(isinstance(entry, Return) for entry in since)
        yield "seats_kept", {"returns": number_text(returns, "return")}
    for entry in since:
        if isinstance(entry.event, ClientRefused):
            refused = entry.event
            yield "refused", {"client": refused.client.client_id, "why": refused.why, "until": refused.until}
