"""Where a script is played: one server, and clients that do what the script says.

A stage has clients, each a connection with a name. A script (script.py) says what they send and when they look for an
answer; all that is sent and received goes into the transcript.

After each request the stage asks the server something harmless on another connection and waits for that answer: both
servers read requests in the order in which they come (Kafka with one network and one request thread), so what was sent
first is also handled first. Nothing in a script depends on how long something takes, except where it waits for
something to happen, and then it waits for that (`until`).

House rule: a script knows no server.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar
from uuid import UUID

from protocol.header import decode_response, encode_request
from protocol.messages import (
    ConsumerProtocolSubscription,
    DescribeGroupsResponse,
    ElectLeadersResponse,
    JoinGroupResponse,
    Message,
    MetadataResponse,
    encode,
)
from schemas.errors import ErrorCode
from tests.oracle.transcript import STAYS_MS, Transcript
from tests.support.patience import WITHIN_S
from tests.support.raw import Closed, Connection, NoAnswer
from tests.support.requests import request

HAPPENS_WITHIN_S = 40.0
"""Less than the 45 s after which Kafka removes a silent consumer: no script takes that for what it waits for."""
LOOK_AGAIN_AFTER_S = 0.02

SHORT_BELOW_MS = 5_000
"""Shorter timeouts of members are waited for, or outlasted. They are long enough for the steps before them, unless the
machine is very busy.
"""

# Indexed by JoinGroup's version: the versions of the other APIs of the same client.
SYNC_VERSION = (0, 0, 1, 2, 2, 3, 4, 5, 5, 5)
HEARTBEAT_VERSION = (0, 0, 1, 2, 2, 3, 4, 4, 4, 4)
LEAVE_VERSION = (0, 0, 1, 2, 2, 3, 4, 4, 5, 5)
COMMIT_VERSION = (1, 2, 3, 4, 6, 7, 8, 8, 8, 9)

BROKER = 4
"""The type of a broker's settings in DescribeConfigs."""

Result = TypeVar("Result")
Assignments = Mapping["Client", bytes]


class Server(Protocol):
    """A server that listens on 127.0.0.1:`port`."""

    @property
    def port(self) -> int:
        """The same after a restart."""


def at_once(one: Callable[[], Result], other: Callable[[], Result]) -> tuple[Result, Result]:
    """Do both at the same time: two servers wait for their timeouts together."""
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.submit(one), threads.submit(other)
        return first.result(), second.result()


class Stage:
    """A server during one script.

    group: a group id that no other script uses; further ones begin with it and a full stop.
    """

    def __init__(self, server: Server, name: str, slower: int = 1) -> None:
        self._slower = slower
        self.group = name
        self.transcript = Transcript(server.port, name)
        self._server = server
        self._clients: list[Client] = []
        self._control = Connection(server.port, "control")
        self._until(self._has_loaded)

    def client(self, name: str, **settings: Any) -> Client:
        """A client on a connection of its own; `settings` are Client's fields."""
        made = Client(self, name, group=settings.pop("group", self.group), **settings)
        self._clients.append(made)
        return made

    def static(self, name: str, **settings: Any) -> Client:
        """A static client, whose instance id is its name in capitals."""
        return self.client(name, instance=name.upper(), **settings)

    def form(self, leader: Client, *followers: Client, assign: bool = True) -> None:
        """Bring a group of these members to Stable (or, without `assign`, to CompletingRebalance).

        The leader joins first and again when the others wait; its member's assignment is its name.
        """
        members = [leader, *followers]
        leader.enter()
        for follower in followers:
            if follower.is_dynamic and follower.version >= 4:
                follower.join()
            follower.send_join()
        if followers:
            leader.join()
            for follower in followers:
                follower.joined()
        if assign:
            leader.send_sync({member: member.name.encode() for member in members})
            for follower in followers:
                follower.send_sync()
            for member in members:
                member.receive()

    def topic(self, name: str, partitions: int) -> str:
        """A topic that is there and has a leader; its name."""
        topic = {"name": name, "num_partitions": partitions, "replication_factor": 1}
        self._control.ask(request("CreateTopics", topics=[topic], timeout_ms=60_000), 4)
        self.until_topic(name)
        return name

    def known_topic(self, name: str, partitions: int) -> str:
        """A topic that is there, and whose id the transcript shows as its name; its name.

        Kafka's coordinator hears of a topic a moment after others do, but before the next topic is there.
        """
        self.topic(name, partitions)
        self.topic(f"fence.{name}", 1)
        self.transcript.topics[self.topic_id(name)] = name
        return name

    def ask_aside(self, request: Message, version: int) -> Any:
        """The answer to a request, outside of the transcript."""
        return self._control.ask(request, version)

    def until_true(self, happened: Callable[[], bool]) -> None:
        """Wait until this is so."""
        self._until(happened)

    def describe(self, group: str | None = None) -> DescribeGroupsResponse.DescribedGroup:
        """A group's description, outside of the transcript."""
        asked = request("DescribeGroups", groups=[self.group if group is None else group])
        answer: DescribeGroupsResponse = self._control.ask(asked, 5)
        return answer.groups[0]

    def until(
        self, condition: Callable[[DescribeGroupsResponse.DescribedGroup], bool], group: str | None = None
    ) -> None:
        """Wait until a group has this state, for scripts about timeouts."""
        self._until(lambda: condition(self.describe(group)))

    def until_members(self, count: int, group: str | None = None) -> None:
        """Wait until a group has so many members."""
        self.until(lambda described: len(described.members) == count, group)

    def until_state(self, state: str, group: str | None = None) -> None:
        """Wait until a group is in this state."""
        self.until(lambda described: described.group_state == state, group)

    def until_topic(self, name: str) -> None:
        """Wait until a topic and its partitions can be read: Kafka's metadata has them a moment earlier."""
        self._until(lambda: self._can_be_read(name))

    def until_configs(self, sources: Sequence[int], *names: str, value: str | None = None) -> None:
        """Wait until changes of just these sources (2: node 1, 3: all nodes) are in effect, one of them to `value`.

        Kafka shows a change of a broker's settings a moment after it has answered.
        """
        broker = {"resource_type": BROKER, "resource_name": "1", "configuration_keys": list(names)}
        asked = request("DescribeConfigs", resources=[broker], include_synonyms=True)

        def are_in_effect() -> bool:
            configs = self._control.ask(asked, 4).results[0].configs
            found = {each.config_source for each in configs if each.config_source in {2, 3}}
            return found == set(sources) and (value is None or value in {each.value for each in configs})

        self._until(are_in_effect)

    def topic_id(self, name: str) -> UUID:
        """A topic's id, outside of the transcript."""
        return self._metadata(name).topic_id

    def log_folder(self) -> str:
        """The folder of the server's logs, outside of the transcript."""
        return str(self._control.ask(request("DescribeLogDirs"), 2).results[0].log_dir)

    def pass_time(self, at_least_ms: int) -> None:
        """Let time pass on the server's own clock: until a member of another group, made for this, has expired."""
        at_least_ms *= self._slower
        self.transcript.is_timed = True
        clock = Client(self, "clock", group=f"clock.{self.group}", instance="clock", session_timeout_ms=at_least_ms)
        with clock.connection:
            join = request(
                "JoinGroup",
                group_id=clock.group,
                session_timeout_ms=at_least_ms,
                rebalance_timeout_ms=at_least_ms,
                group_instance_id="clock",
                protocol_type="consumer",
                protocols=protocol_list({"range": b""}),
            )
            joined = clock.connection.ask(join, 5)
            held = {"generation_id": joined.generation_id, "member_id": joined.member_id}
            clock.connection.ask(request("SyncGroup", group_id=clock.group, **held), 3)
        # Nothing else removes the clock, however slow the machine is.
        self._until(lambda: not self.describe(clock.group).members, at_least_ms / 1000 + WITHIN_S)

    def timeout_ms(self, wanted_ms: int) -> int:
        """A member's timeout: a short one is as long as this stage has it."""
        if wanted_ms >= SHORT_BELOW_MS:
            return wanted_ms
        self.transcript.is_timed = True
        return wanted_ms * self._slower

    def barrier(self) -> None:
        """Return when what was sent before is being handled."""
        self._control.ask(request("ApiVersions"), 0)

    def reconnect(self) -> None:
        """The server is back: every client gets a new connection."""
        self.transcript.add("", "the server was killed and is back")
        self._control.close()
        self._control = Connection(self._server.port, "control")
        self._until(self._has_loaded)
        for client in self._clients:
            client.reconnect()

    def connect(self, client_id: str | None) -> Connection:
        """A connection that the server has accepted: until then what is sent on it could be overtaken."""
        connection = Connection(self._server.port, client_id)
        connection.ask(request("ApiVersions"), 0)
        return connection

    def _has_loaded(self) -> bool:
        """Whether the coordinator has read all its groups: until then it refuses most requests."""
        return bool(self._control.ask(request("ListGroups"), 1).error_code == ErrorCode.NONE)

    def _can_be_read(self, name: str) -> bool:
        partitions = [
            {"partition_index": partition.partition_index, "timestamp": -1}
            for partition in self._metadata(name).partitions
        ]
        asked = request("ListOffsets", replica_id=-1, topics=[{"name": name, "partitions": partitions}])
        offsets = self._control.ask(asked, 1)
        return bool(partitions) and all(partition.error_code == 0 for partition in offsets.topics[0].partitions)

    def _metadata(self, name: str) -> MetadataResponse.MetadataResponseTopic:
        asked = request("Metadata", topics=[{"name": name}], allow_auto_topic_creation=False)
        answer: MetadataResponse = self._control.ask(asked, 12)
        return answer.topics[0]

    def _until(self, happened: Callable[[], bool], within_s: float = HAPPENS_WITHIN_S) -> None:
        deadline = time.monotonic() + within_s
        pause = threading.Event()
        while not happened():
            if time.monotonic() > deadline:
                self.transcript.add("", "it did not happen")
                raise NoAnswer
            pause.wait(LOOK_AGAIN_AFTER_S)

    def close(self) -> None:
        """Close every connection."""
        self._control.close()
        for client in self._clients:
            client.connection.close()


class Client:
    """A connection that can act as a member.

    name: in the transcript. version: of JoinGroup; the other APIs follow it. instance: the group instance id, None for
    a dynamic member. protocols: names, or names to metadata. member_id and generation are what its answers said last.
    """

    def __init__(
        self,
        stage: Stage,
        name: str,
        *,
        group: str,
        version: int = 5,
        instance: str | None = None,
        client_id: str | None = "oracle",
        protocols: Sequence[str] | Mapping[str, bytes] = ("range",),
        protocol_type: str = "consumer",
        session_timeout_ms: int = STAYS_MS,
        rebalance_timeout_ms: int = STAYS_MS,
    ) -> None:
        self.stage = stage
        self.name = name
        self.group = group
        self.version = version
        self.instance = instance
        self.client_id = client_id
        self.protocols = protocols
        self.protocol_type = protocol_type
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.member_id = ""
        self.generation = -1
        self.protocol_name: str | None = None
        self.connection = stage.connect(client_id)

    @property
    def is_dynamic(self) -> bool:
        """Whether it has no instance id."""
        return self.instance is None

    # -- anything

    def send(self, request: Message, version: int) -> None:
        """Send a request; it has arrived when this returns."""
        self.stage.transcript.add(self.name, f"> {_api(request)} v{version}", request)
        self.connection.send(request, version)
        self.stage.barrier()

    def receive(self, asks_again: Callable[[Message], bool] = lambda _: False) -> Any:
        """The next answer. Without one the script ends here, and the transcript says so.

        asks_again: whether it has asked again, because of this answer, which the transcript then leaves out.
        """
        try:
            answer = self.connection.receive()
            while asks_again(answer):
                answer = self.connection.receive()
        except NoAnswer:
            self.stage.transcript.add(self.name, "gets no answer")
            raise
        except Closed:
            self.stage.transcript.add(self.name, "is closed")
            raise
        self.stage.transcript.add(self.name, f"< {_api(answer)}", answer)
        return answer

    def ask(self, request: Message, version: int) -> Any:
        """Send a request and take its answer."""
        self.send(request, version)
        return self.receive()

    def waits(self) -> None:
        """Note that no answer has come yet."""
        self.stage.barrier()
        self.stage.transcript.add(self.name, "waits" if self.connection.is_silent() else "has an answer")

    def ask_about(self, topics: Sequence[str], request: Message, version: int) -> None:
        """Send a request and take its answer, from which all other topics are left out."""
        self.send(request, version)
        answer: Any = self.connection.receive()
        if isinstance(answer, ElectLeadersResponse):
            results = answer.replica_election_results
            answer.replica_election_results = [each for each in results if each.topic in topics]
        else:
            (folder,) = answer.results
            assert folder.usable_bytes <= folder.total_bytes
            assert version < 4 or folder.usable_bytes > 0
            folder.topics = [each for each in folder.topics if each.name in topics]
        self.stage.transcript.add(self.name, f"< {_api(answer)}", answer)

    def ask_with(self, content: bytes, request: Message, version: int) -> None:
        """Send a request with `content` in place of each run of as many "@", also as its client id; take the answer."""
        mark = "@" * len(content)
        assert request.API_KEY is not None
        frame = encode_request(request, version, 7, mark).replace(mark.encode(), content)
        self.send_bytes(frame, f"{request.NAME} v{version} {content!r}")
        answer = decode_response(request.API_KEY, version, self.connection.receive_frame())[1]
        self.stage.transcript.add(self.name, f"< {answer.NAME}", answer)

    def send_bytes(self, data: bytes, what: str = "") -> None:
        """Send bytes as they are."""
        self.stage.transcript.add(self.name, f"> {what}")
        self.connection.send_bytes(data)

    def send_frame(self, frame: bytes) -> None:
        """Send bytes behind their size."""
        self.send_bytes(len(frame).to_bytes(4, "big") + frame)

    def send_byte_by_byte(self, data: bytes) -> None:
        """Send bytes one after the other."""
        for position in range(len(data)):
            self.connection.send_bytes(data[position : position + 1])

    def is_closed(self) -> None:
        """The server closes the connection."""
        try:
            frame = self.connection.receive_frame()
        except Closed:
            self.stage.transcript.add(self.name, "is closed")
        except NoAnswer:
            self.stage.transcript.add(self.name, "stays connected")
        else:
            self.stage.transcript.add(self.name, f"< {frame[4:]!r}")

    def reconnect(self) -> None:
        """Go on with a new connection, as the same member; what was due on the old one is lost."""
        self.connection.close()
        self.connection = self.stage.connect(self.client_id)

    def restarted(self, name: str, **changes: Any) -> Client:
        """The same program again on a connection of its own: same settings, no member id."""
        settings: dict[str, Any] = {
            "group": self.group,
            "version": self.version,
            "instance": self.instance,
            "client_id": self.client_id,
            "protocols": self.protocols,
            "protocol_type": self.protocol_type,
            "session_timeout_ms": self.session_timeout_ms,
            "rebalance_timeout_ms": self.rebalance_timeout_ms,
        }
        return self.stage.client(name, **{**settings, **changes})

    # -- a member's requests

    def join(self, **changes: Any) -> JoinGroupResponse:
        """JoinGroup and its answer."""
        self.send_join(**changes)
        return self.joined()

    def send_join(self, *, version: int | None = None, **changes: Any) -> None:
        """Send JoinGroup with the member's own id and settings."""
        protocols = self.protocols if isinstance(self.protocols, Mapping) else dict.fromkeys(self.protocols, b"")
        fields: dict[str, Any] = {
            "group_id": self.group,
            "session_timeout_ms": self.stage.timeout_ms(self.session_timeout_ms),
            "rebalance_timeout_ms": self.stage.timeout_ms(self.rebalance_timeout_ms),
            "member_id": self.member_id,
            "group_instance_id": self.instance,
            "protocol_type": self.protocol_type,
            "protocols": protocol_list(protocols),
        }
        self.send(request("JoinGroup", **{**fields, **changes}), self.version if version is None else version)

    def joined(self) -> JoinGroupResponse:
        """Take JoinGroup's answer, and from it the member id, generation and protocol."""
        answer: JoinGroupResponse = self.receive()
        if answer.error_code in {ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED}:
            self.member_id = answer.member_id
        if answer.error_code == ErrorCode.NONE:
            self.generation = answer.generation_id
            self.protocol_name = answer.protocol_name
        return answer

    def enter(self) -> JoinGroupResponse:
        """Join; a dynamic member without an id joins again with the id from the answer."""
        answer = self.join()
        return self.join() if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED else answer

    def sync(self, assignments: Assignments | None = None, **changes: Any) -> None:
        """SyncGroup and its answer."""
        self.send_sync(assignments, **changes)
        self.receive()

    def send_sync(self, assignments: Assignments | None = None, *, version: int | None = None, **changes: Any) -> None:
        """Send SyncGroup, as the leader with everybody's assignment."""
        fields: dict[str, Any] = {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
            "protocol_type": self.protocol_type,
            "protocol_name": self.protocol_name,
            "assignments": [
                {"member_id": member.member_id, "assignment": assignment}
                for member, assignment in (assignments or {}).items()
            ],
        }
        version = SYNC_VERSION[self.version] if version is None else version
        self.send(request("SyncGroup", **{**fields, **changes}), version)

    def heartbeat(self, *, version: int | None = None, **changes: Any) -> None:
        """Heartbeat and its answer."""
        self.send_heartbeat(version=version, **changes)
        self.receive()

    def send_heartbeat(self, *, version: int | None = None, **changes: Any) -> None:
        """Send Heartbeat."""
        fields: dict[str, Any] = {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
        }
        version = HEARTBEAT_VERSION[self.version] if version is None else version
        self.send(request("Heartbeat", **{**fields, **changes}), version)

    def leave(self, *members: tuple[str, str | None], version: int | None = None, group: str | None = None) -> None:
        """LeaveGroup and its answer: itself by its member id, or `members` as pairs of member id and instance id."""
        self.send_leave(*members, version=version, group=group)
        self.receive()

    def send_leave(
        self, *members: tuple[str, str | None], version: int | None = None, group: str | None = None
    ) -> None:
        """Send LeaveGroup."""
        version = LEAVE_VERSION[self.version] if version is None else version
        group_id = self.group if group is None else group
        named = members or ((self.member_id, None),)
        if version < 3:
            ((member_id, _),) = named
            self.send(request("LeaveGroup", group_id=group_id, member_id=member_id), version)
            return
        identities = [{"member_id": member_id, "group_instance_id": instance} for member_id, instance in named]
        self.send(request("LeaveGroup", group_id=group_id, members=identities), version)

    def commit(self, topic: str, offset: int = 1, *, version: int | None = None, **changes: Any) -> None:
        """OffsetCommit of one offset for partition 0, and its answer."""
        self.send_commit(topic, offset, version=version, **changes)
        self.receive()

    def send_commit(self, topic: str, offset: int = 1, *, version: int | None = None, **changes: Any) -> None:
        """Send OffsetCommit."""
        fields: dict[str, Any] = {
            "group_id": self.group,
            "generation_id_or_member_epoch": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
            "topics": commit_topics({topic: {0: offset}}),
        }
        version = COMMIT_VERSION[self.version] if version is None else version
        self.send(request("OffsetCommit", **{**fields, **changes}), version)

    # -- what anybody may ask

    def list_groups(self, *, version: int = 5, states: Sequence[str] = (), types: Sequence[str] = ()) -> None:
        """ListGroups and its answer, from which the groups of other scripts are left out."""
        self.send(request("ListGroups", states_filter=list(states), types_filter=list(types)), version)
        answer = self.connection.receive()
        own = self.stage.group
        answer.groups = [listed for listed in answer.groups if f"{listed.group_id}.".startswith(f"{own}.")]
        self.stage.transcript.add(self.name, "< ListGroups", answer)

    def delete_groups(self, *groups: str, version: int = 2) -> None:
        """DeleteGroups of its own group, or of `groups`, and its answer."""
        self.ask(request("DeleteGroups", groups_names=list(groups) or [self.group]), version)

    def delete_offsets(self, topics: Mapping[str, Sequence[int]], *, group: str | None = None) -> None:
        """OffsetDelete and its answer."""
        asked = [
            {"name": name, "partitions": [{"partition_index": index} for index in partitions]}
            for name, partitions in topics.items()
        ]
        self.ask(request("OffsetDelete", group_id=self.group if group is None else group, topics=asked), 0)

    def fetch_offsets(self, topics: Mapping[str, Sequence[int]] | None, *, group: str | None = None) -> None:
        """OffsetFetch v7 and its answer."""
        asked = None
        if topics is not None:
            asked = [{"name": name, "partition_indexes": list(partitions)} for name, partitions in topics.items()]
        self.ask(request("OffsetFetch", group_id=self.group if group is None else group, topics=asked), 7)

    def describe(self, *groups: str, version: int = 5) -> None:
        """DescribeGroups of its own group, or of `groups`, and its answer."""
        self.ask(request("DescribeGroups", groups=list(groups) or [self.group]), version)

    def describe_consumers(self, *groups: str, version: int = 1) -> None:
        """ConsumerGroupDescribe of its own group, or of `groups`, and its answer."""
        self.ask(request("ConsumerGroupDescribe", group_ids=list(groups) or [self.group]), version)


def protocol_list(protocols: Mapping[str, bytes]) -> list[dict[str, Any]]:
    """JoinGroup's protocols, the preferred one first."""
    return [{"name": name, "metadata": metadata} for name, metadata in protocols.items()]


def subscription(*topics: str) -> bytes:
    """A consumer's metadata: version 0, these topics, no user data. Kafka reads it, and hangs on what looks huge."""
    return b"\0\0" + encode(ConsumerProtocolSubscription(topics=list(topics)), 0)


def commit_topics(offsets: Mapping[str, Mapping[int, int]], metadata: str | None = "") -> list[dict[str, Any]]:
    """OffsetCommit's topics: topic to partition to offset."""
    return [
        {
            "name": name,
            "partitions": [
                {"partition_index": index, "committed_offset": offset, "committed_metadata": metadata}
                for index, offset in partitions.items()
            ],
        }
        for name, partitions in offsets.items()
    ]


def _api(message: Message) -> str:
    return message.NAME.removesuffix("Request").removesuffix("Response")
