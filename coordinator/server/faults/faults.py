"""The faults of a running server: dispatch asks here before a handler sees a request.

`Api.faults` is None while nothing is planned and nobody watches: then dispatch pays for one look at an attribute. While
a planned fault may concern heartbeats or commits, or somebody watches, no connection takes short cuts, so every request
comes by here. The requests of the server's own page don't.

A fault that leaves a request without an answer mutes its connection: the client's bytes are thrown away until it closes
the connection. If a fault is removed, the connections that it muted close, and the clients connect again.

House rule: everything here runs on the loop's thread. Another thread uses `loop.call_soon_threadsafe`; it may read
`Fault.seen` and `Fault.fired`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, partial
from typing import Any, Protocol
from uuid import UUID

from coordinator.loop.clock import Alarm, Clock
from coordinator.loop.lines import Lines
from coordinator.server.faults.plan import NAMING, Action, Fault
from coordinator.server.faults.refusals import as_loading, refusal
from coordinator.server.wire.api import UNTOUCHED, Dispatched, Interceptor
from coordinator.server.wire.call import Call, Outcome, Send
from coordinator.server.wire.connection import Connection, Waiting
from coordinator.server.wire.listener import Connections
from protocol.messages import api_schema, decode, request_class

REPEATED = ("Heartbeat", "ConsumerGroupHeartbeat", "OffsetCommit")
"""The APIs whose requests may take short cuts."""

OF_GROUP, OF_TRANSACTION = 0, 1
"""Kinds of keys in a FindCoordinator."""


class Handled(Waiting, Protocol):
    """A request under way."""

    def take(self, send: Send) -> Outcome | None:
        """Its outcome if it has one; if not, `send` gets it later."""


class Handler(Protocol):
    """The place behind the faults, which handles requests: `Api`, or a test's way to another broker.

    faults: asked about each request, unless None.
    """

    faults: Interceptor | None

    def handle(self, connection: Connection, frame: bytes, /) -> Handled:
        """Handle a request of a connection."""

    def call_of(self, connection: Connection, frame: bytes, /) -> Call:
        """The call for a request that is answered here."""


TOPICS = {
    "Produce": ("topic_data", "partition_data", "index"),
    "Fetch": ("topics", "partitions", "partition"),
    "ListOffsets": ("topics", "partitions", "partition_index"),
    "OffsetCommit": ("topics", "partitions", "partition_index"),
    "OffsetFetch": ("topics", "partition_indexes", ""),
    "TxnOffsetCommit": ("topics", "partitions", "partition_index"),
    "AddPartitionsToTxn": ("v3_and_below_topics", "partitions", ""),
    "DeleteRecords": ("topics", "partitions", "partition_index"),
}
"""The APIs whose requests name topic partitions, with the fields of topics, of their partitions, and of the number."""

InstanceOf = Callable[[str, str], str | None]
"""The instance id of a member, by the ids of its group and its own."""

NameOf = Callable[[UUID], str | None]
"""The name of a topic, by its id."""


class Asked:
    """A request, as conditions see it.

    api: the name of its API. api_key, version, client_id: of its header. frame: its bytes. offset: where its body
    starts. instance_of: knows the members. name_of: knows the topics. Raises ProtocolError where its body is needed and
    is broken.
    """

    def __init__(
        self,
        api_key: int,
        version: int,
        client_id: str | None,
        frame: bytes,
        offset: int,
        instance_of: InstanceOf,
        name_of: NameOf,
    ) -> None:
        self.api: str = api_schema(api_key).NAME
        self.api_key = api_key
        self.version = version
        self.client_id = client_id
        self.frame = frame
        self._offset = offset
        self._instance_of = instance_of
        self._name_of = name_of

    @cached_property
    def body(self) -> Any:
        """The decoded request."""
        return decode(request_class(self.api_key), self.frame, self.version, self._offset)

    @cached_property
    def groups(self) -> list[str]:
        """The ids of the groups that it names."""
        match self.api:
            case "DescribeGroups":
                return list(self.body.groups)
            case "ConsumerGroupDescribe":
                return list(self.body.group_ids)
            case "DeleteGroups":
                return list(self.body.groups_names)
            case "OffsetFetch" if self.version >= 8:
                return [group.group_id for group in self.body.groups]
            case "FindCoordinator":
                return self._coordinator_keys(OF_GROUP)
            case _:
                return self._named("group_id")

    @cached_property
    def transactional_ids(self) -> list[str]:
        """The transactional ids that it names."""
        match self.api:
            case "InitProducerId" | "Produce" | "AddOffsetsToTxn" | "TxnOffsetCommit" | "EndTxn":
                return [self.body.transactional_id]
            case "AddPartitionsToTxn":
                several = [each.transactional_id for each in self.body.transactions]
                return [*several, self.body.v3_and_below_transactional_id]
            case "DescribeTransactions":
                return list(self.body.transactional_ids)
            case "FindCoordinator":
                return self._coordinator_keys(OF_TRANSACTION)
            case _:
                return []

    @cached_property
    def topic_partitions(self) -> list[tuple[str | None, int]]:
        """The topic partitions that it names; of a Fetch in a session, those that the session didn't have."""
        topics_field, partitions_field, number_field = TOPICS.get(self.api, ("", "", ""))
        places = self.body.groups if self.api == "OffsetFetch" else []
        places = [*places, *self.body.transactions] if self.api == "AddPartitionsToTxn" else places
        topics = [topic for place in places for topic in place.topics or ()]
        topics += (getattr(self.body, topics_field) or ()) if topics_field else ()
        return [
            (self._topic(topic), getattr(each, number_field) if number_field else each)
            for topic in topics
            for each in getattr(topic, partitions_field)
        ]

    def _topic(self, topic: Any) -> str | None:
        name = getattr(topic, "name", "") or getattr(topic, "topic", "")
        return name or self._name_of(topic.topic_id)

    def _coordinator_keys(self, kind: int) -> list[str]:
        """The keys of a FindCoordinator, if they are of this kind."""
        keys = self.body.coordinator_keys if self.version >= 4 else [self.body.key]
        return list(keys) if self.body.key_type == kind else []

    @cached_property
    def member_ids(self) -> list[str]:
        """The ids of the members that it names."""
        return [member_id for member_id in self._named("member_id") if member_id]

    @cached_property
    def instance_ids(self) -> list[str]:
        """The instance ids that it names, and those of the members that it names: old versions have no instance id."""
        found = self._named("instance_id" if self.api == "ConsumerGroupHeartbeat" else "group_instance_id")
        for group_id in self.groups:
            held = (self._instance_of(group_id, member_id) for member_id in self.member_ids)
            found += filter(None, held)
        return found

    def _named(self, field: str) -> list[str]:
        """The values of a field, on top or in the members of a LeaveGroup."""
        if self.api not in NAMING:
            return []
        members = self.body.members if self.api == "LeaveGroup" else []
        found = [getattr(each, field, None) for each in (self.body, *members)]
        return [value for value in found if value is not None]

    def meets(self, fault: Fault) -> bool:
        """Whether it meets a fault's conditions, apart from the count."""
        return (
            fault.concerns(self.api)
            and fault.client_id in (None, self.client_id)
            and fault.version in (None, self.version)
            and (fault.group is None or fault.group in self.groups)
            and (fault.member_id is None or fault.member_id in self.member_ids)
            and (fault.instance_id is None or fault.instance_id in self.instance_ids)
            and (fault.transactional_id is None or fault.transactional_id in self.transactional_ids)
            and ((fault.topic is None and fault.partition is None) or self._names(fault.topic, fault.partition))
        )

    def _names(self, topic: str | None, partition: int | None) -> bool:
        """Whether it names a topic partition with these; None: any."""
        return any(topic in {None, name} and partition in {None, number} for name, number in self.topic_partitions)


Watch = Callable[["Connection", Asked, Fault | None], None]
"""Called with each request of a client before it is handled, and the fault that it gets."""


class Faults:
    """See the module. It may be handed to one server after another, and keeps its plan.

    on_kill: called where the plan kills the coordinator, when all connections are silent.
    """

    def __init__(self, plan: Iterable[Fault] = (), on_kill: Callable[[], None] = lambda: None) -> None:
        self.on_kill = on_kill
        self._plan = list(plan)
        self._watches: list[Watch] = []
        self._muted: dict[Connection, Fault] = {}
        self._api: Handler | None = None
        self._connections: Connections
        self._instance_of: InstanceOf
        self._name_of: NameOf
        self._lines: Lines
        self._clock: Clock
        self._soon: Callable[[Callable[[], None]], object]
        self._delayed: Alarm[_Delayed]

    def attach(
        self,
        api: Handler,
        connections: Connections,
        instance_of: InstanceOf,
        name_of: NameOf,
        clock: Clock,
        lines: Lines,
        soon: Callable[[Callable[[], None]], object],
    ) -> None:
        """Serve a server that starts. instance_of: knows its members. name_of: knows its topics.

        soon: has the loop call back in its next turn.
        """
        self._api = api
        self._connections = connections
        self._instance_of = instance_of
        self._name_of = name_of
        self._lines = lines
        self._clock = clock
        self._soon = soon
        self._delayed = Alarm(clock, _Delayed.go_on)
        self._muted.clear()
        self._changed()

    def detach(self) -> None:
        """The server stops."""
        self._api = None
        self._delayed.stop()

    # The plan.

    def __iter__(self) -> Iterator[Fault]:
        return iter(self._plan)

    def add(self, *faults: Fault) -> None:
        """Plan further faults. A black hole for a client id alone starts at once."""
        self._plan += faults
        self._changed()

    def remove(self, *faults: Fault) -> None:
        """Take faults out of the plan; the connections that they muted close."""
        self._plan = [fault for fault in self._plan if fault not in faults]
        for connection, fault in list(self._muted.items()):
            if fault in faults:
                connection.close()
        self._changed()

    def clear(self) -> None:
        """Take all faults out of the plan."""
        self.remove(*self._plan)

    @property
    def never_fired(self) -> list[Fault]:
        """The planned faults that no request met."""
        return [fault for fault in self._plan if not fault.fired]

    def is_muted(self, connection: Connection) -> bool:
        """Whether a fault throws away what comes through a connection."""
        return connection in self._muted

    def watch(self, watch: Watch) -> Callable[[], None]:
        """Show each request to `watch` from now on. Returns a function that ends it."""
        self._watches.append(watch)
        self._changed()

        def end() -> None:
            self._watches.remove(watch)
            self._changed()

        return end

    def _changed(self) -> None:
        """Have dispatch ask here, or not."""
        if self._api is None:
            return
        live = [fault for fault in self._plan if not fault.is_spent]
        self._api.faults = self if live or self._watches else None
        self._may_short_cut = not self._watches and not any(fault.concerns(api) for fault in live for api in REPEATED)
        if not self._may_short_cut:
            for connection in self._connections:
                connection.may_short_cut = False
        for fault in live:
            if fault.action is Action.BLACKHOLE and fault.is_for_a_client_alone:
                for connection in list(self._connections):
                    if connection not in self._muted and connection.is_of(fault.client_id):
                        fault.seen += 1
                        self._fire(fault, f"the connection of {connection.peer}")
                        self._mute(connection, fault)

    # A request.

    def intercept(
        self, connection: Connection, api_key: int, version: int, client_id: str | None, frame: bytes, offset: int
    ) -> Dispatched:
        """For dispatch: the outcome of a request that has a fault, UNTOUCHED for any other."""
        connection.may_short_cut = self._may_short_cut
        asked = Asked(api_key, version, client_id, frame, offset, self._instance_of, self._name_of)
        first, last = api_schema(api_key).VERSIONS
        # Only dispatch can answer an ApiVersions of an unknown version.
        fault = self._due(asked) if first <= version <= last else None
        for watch in self._watches:
            watch(connection, asked, fault)
        if fault is None:
            return UNTOUCHED
        self._fire(fault, f"{asked.api} of {client_id} at {connection.peer}")
        if fault.is_spent:
            self._changed()
        return self._carry_out(fault, connection, asked)

    def _due(self, asked: Asked) -> Fault | None:
        """The first fault in the plan for this request. All others count it too."""
        due = None
        for fault in self._plan:
            if not fault.is_spent and asked.meets(fault):
                fault.seen += 1
                if due is None and fault.seen >= fault.nth:
                    due = fault
        return due

    def _fire(self, fault: Fault, what: str) -> None:
        fault.fired += 1
        self._lines.info("fault_fired", f"Fault for {what}: {fault}", fault=str(fault), fired=fault.fired)

    def _carry_out(self, fault: Fault, connection: Connection, asked: Asked) -> Dispatched:
        match fault.action:
            case Action.ERROR | Action.LOADING:
                return self._answer(fault, connection, asked)
            case Action.DELAY:
                assert self._api is not None
                delayed = _Delayed(self._api, connection, asked.frame)
                self._delayed.arm(delayed, self._clock.ms() + fault.argument)
                connection.wait_for(delayed)
            case Action.DROP_REQUEST | Action.BLACKHOLE:
                self._mute(connection, fault)
            case Action.DROP_RESPONSE:
                self._handle(connection, asked, fault, lambda: None)
            case Action.DISCONNECT:
                self._mute(connection, fault)
                self._soon(connection.close)
            case Action.DISCONNECT_AFTER:
                self._handle(connection, asked, fault, partial(self._soon, connection.close))
            case Action.KILL:
                self._handle(connection, asked, fault, self._kill)
        return None

    def _answer(self, fault: Fault, connection: Connection, asked: Asked) -> Dispatched:
        """Answer with an error."""
        assert self._api is not None
        call = self._api.call_of(connection, asked.frame)
        if asked.api == "Produce" and asked.body.acks == 0:
            call.answer_nothing()
        elif fault.action is Action.LOADING:
            call.answer(as_loading(asked.api_key, asked.version, asked.body))
        else:
            call.answer(refusal(asked.api_key, asked.version, asked.body, fault.argument))
        return call.take(connection.send)

    def _handle(self, connection: Connection, asked: Asked, fault: Fault, then: Callable[[], object]) -> None:
        """Handle a request. Where its answer would go out, it is dropped, and `then` is called."""
        assert self._api is not None
        self._mute(connection, fault)
        call = self._api.handle(connection, asked.frame)

        def ended(_: Outcome) -> None:
            if call.on_sent is not None:
                call.on_sent()  # nobody takes the answer
            then()

        outcome = call.take(ended)
        if outcome is not None:
            ended(outcome)

    def _mute(self, connection: Connection, fault: Fault) -> None:
        self._muted[connection] = fault
        connection.mute(partial(self._muted.pop, connection, None))

    def _kill(self) -> None:
        for connection in list(self._connections):
            connection.mute(lambda: None)
        self.on_kill()


class _Delayed:
    """A request that its connection waits for, in place of a call, until its time has come."""

    on_sent = None

    def __init__(self, api: Handler, connection: Connection, frame: bytes) -> None:
        self._api = api
        self._connection: Connection | None = connection
        self._frame = frame

    def close(self) -> None:
        """The connection is gone."""
        self._connection = None

    def go_on(self) -> None:
        """Handle the request."""
        connection = self._connection
        if connection is None:
            return
        try:
            call = self._api.handle(connection, self._frame)
            outcome: Outcome | None = call.take(connection.send)
        except Exception as error:  # noqa: BLE001 - it costs this connection, as in dispatch
            connection.send(error)
            return
        connection.wait_for(call)
        if outcome is not None:
            connection.send(outcome)
