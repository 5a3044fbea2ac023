"""Dispatch: each request finds its handler.

A request comes in through `Api.dispatch`, or through `Api.handle` where the server asks itself. So here, and nowhere
else, a request can be delayed, dropped or refused before a handler sees it.

Five short cuts save work:

    a heartbeat                       makes neither event nor `Call`
    a heartbeat that repeats another  is answered by its bytes (`repeated_heartbeats`), kept per principal and host
    the same of the consumer protocol is answered by its bytes (`repeated_beats`), kept per connection
    a commit that repeats another     is taken by its bytes (`repeated_commits`), kept per connection
    a question that repeats another   is answered by its bytes (`repeated_questions`): those of a program that starts

A connection takes the middle three by itself, before dispatch sees the request, while its switch `may_short_cut` is on.
Only dispatch sets the switch: it is off until dispatch has let a first request of the connection through, and while the
time of the client's requests counts against a quota (`throttle`). Faults that a test plans (`faults`) come behind the
short cuts; they turn the switch off while a fault could concern such requests.

House rule: `coordinator.apis` names every handler. Only `protocol.header.decode_request_header` checks versions; the
exception is ApiVersions, where KIP-511 asks for an answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from coordinator.apis import APIS
from coordinator.group.client import Client
from coordinator.group.group import Group
from coordinator.security.acls import Kind, Operation
from coordinator.server.wire.call import Call, Caller, Services, Steps
from coordinator.server.wire.connection import Connection
from coordinator.server.wire.long_calls import LongCalls
from coordinator.server.wire.repeated_beats import CONSUMER_HEARTBEAT, beat_of
from coordinator.server.wire.repeated_commits import UNLIKE_MAX, commit_of, has_names
from coordinator.server.wire.repeated_heartbeats import (
    CORRELATION_ID,
    HEARTBEAT,
    HEARTBEAT_BYTES,
    Heartbeats,
    heartbeats_of,
    pack_size,
    template,
)
from coordinator.server.wire.repeated_questions import API_VERSIONS, QUESTION_MAX, QUESTIONS, SOFTWARE_SINCE, Questions
from coordinator.server.wire.throttle import Meter
from coordinator.transaction.state import V2
from protocol.errors import UnknownApi
from protocol.header import RequestHeader, decode_request_header
from protocol.messages import (
    API_KEYS,
    ApiVersionsRequest,
    ApiVersionsResponse,
    HeartbeatRequest,
    Message,
    api_schema,
    decode,
    decode_in_steps,
    request_class,
)
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from protocol.messages import OffsetCommitRequest

OFFSET_COMMIT = API_KEYS["OffsetCommit"]

SOFTWARE = r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?"
"""The form of names and versions of client software (KIP-511)."""

TRANSACTION_VERSION = "transaction.version"
"""The feature by which producers choose transactions with an epoch each (KIP-890)."""

NO_NODE_ID = -1
"""The node id of an ApiVersions whose client names no node."""


def api_versions(call: Call, request: ApiVersionsRequest) -> None:
    """ApiVersions: the APIs in HANDLERS, with the versions of their schemas.

    A client that means another node, or a node of another cluster, gets REBOOTSTRAP_REQUIRED (KIP-1242).
    """
    services = call.services
    if call.api_version >= SOFTWARE_SINCE:
        name, version = request.client_software_name, request.client_software_version
        names_cluster, names_node = request.cluster_id is not None, request.node_id != NO_NODE_ID
        if (
            re.fullmatch(SOFTWARE, name) is None
            or re.fullmatch(SOFTWARE, version) is None
            or names_cluster is not names_node
        ):
            call.answer(ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST))
            return
        here = services.discovery.cluster_id, services.config.node_id
        if names_node and (request.cluster_id, request.node_id) != here:
            call.answer(ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED))
            return
        call.set_software(f"{name} {version}")
    answer = ApiVersionsResponse(api_keys=[_spoken(key) for key in sorted(HANDLERS)])
    if call.api_version >= 3 and not services.transactions.refusal:
        name, level = TRANSACTION_VERSION, services.config.transaction_version
        answer.supported_features = [ApiVersionsResponse.SupportedFeatureKey(name=name, min_version=0, max_version=V2)]
        answer.finalized_features_epoch = 0
        if level:  # a feature at level 0 isn't listed
            answer.finalized_features = [
                ApiVersionsResponse.FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            ]
    call.may_repeat = True
    call.answer(answer)


def _spoken(api_key: int) -> ApiVersionsResponse.ApiVersion:
    first, last = api_schema(api_key).VERSIONS
    return ApiVersionsResponse.ApiVersion(api_key=api_key, min_version=first, max_version=last)


def _speaks(api_versions_version: int) -> bool:
    first, last = api_schema(API_VERSIONS).VERSIONS
    return bool(first <= api_versions_version <= last)


def refuse_api_versions(call: Call) -> None:
    """Answer an ApiVersions of an unknown version: in version 0, with the versions of ApiVersions itself (KIP-511)."""
    body = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[_spoken(API_VERSIONS)])
    call.answer(body, api_version=0)


Handler = Callable[[Call, Any], "Steps | None"]
"""Answers a call, or begins to. A generator, if a client can make its work long."""

DECODED_IN_STEPS_ABOVE = 1_000
"""Bytes of a request. A larger one is decoded in steps: 8 KB may hold 8,000 elements, which take 1.5 ms."""

STEPS_ABOVE = 8 * 1024
"""Bytes of a request. A larger one is handled and answered in steps too."""

HANDLERS = {API_KEYS[api]: row.handler for api, row in APIS.items()}
"""The handler of each API key: a function in a module of the server, which the first such request imports."""


def handler(api_key: int) -> Handler:
    """The handler of an API. Raises UnknownApi for one that only our commands speak, with Apache Kafka."""
    if api_key not in HANDLERS:
        raise UnknownApi(api_key)
    module, _, function = HANDLERS[api_key].rpartition(".")
    found: Handler = getattr(import_module(f"coordinator.server.{module}"), function)
    return found


class Untouched(Enum):
    """The type of UNTOUCHED."""

    UNTOUCHED = "untouched"


UNTOUCHED = Untouched.UNTOUCHED
"""In place of an outcome: the request has no fault, dispatch goes on with it."""

Dispatched = bytes | list[bytes] | None | Untouched


class Interceptor(Protocol):
    """Dispatch asks this about each request while faults are planned: see `faults.faults`."""

    def intercept(
        self, connection: Connection, api_key: int, version: int, client_id: str | None, frame: bytes, offset: int
    ) -> Dispatched:
        """The outcome of a request that has a fault. It also sets the connection's `may_short_cut`."""


OWNERS_MAX = 1_000
"""Principals, or principals at hosts, with kept heartbeats. Above this number, all heartbeats are dropped."""


class Api:
    """Answers the requests of all connections. faults: None unless some are planned."""

    def __init__(self, services: Services) -> None:
        self.faults: Interceptor | None = None
        self._services = services
        self._answered = services.measures.answered
        self._long = LongCalls(services.pace, services.start_config)
        self._heartbeats: dict[str, Heartbeats] = {}
        self._questions = Questions(services)
        self._handlers: dict[int, tuple[Handler, type[Message]]] = {}

    def dispatch(self, connection: Connection, frame: bytes) -> bytes | list[bytes] | None:
        """The answer to a request, with its size, whole or in parts; None if it comes later, through `connection.send`.

        Raises ProtocolError if the request breaks the protocol; then the connection has to be closed.
        """
        if connection.may_short_cut:
            if frame.startswith(HEARTBEAT_BYTES):
                answer = connection.heartbeats.answer(pack_size(len(frame)) + frame)
                if answer is not None:
                    return answer
            beat = connection.beat
            if beat is not None:
                answer = beat.answer(pack_size(len(frame)) + frame)
                if answer is not None:
                    return answer
            commit = connection.commit
            if commit is not None and commit.take(commit.frame_size + frame):
                connection.wait_for(commit)
                return None
        api_key, version, correlation_id, client_id, offset = decode_request_header(frame)
        access, principal = self._services.access, connection.principal
        # ACLs may tell hosts apart.
        owner = principal if access.is_open else f"{connection.ip} {principal}"
        connection.heartbeats = self._heartbeats.get(owner) or self.heartbeats_of(owner)
        if self.faults is None:
            connection.may_short_cut = True
        else:
            found = self.faults.intercept(connection, api_key, version, client_id, frame, offset)
            if found is not UNTOUCHED:
                return found
        meter = None
        if self._services.throttle.is_active:
            meter = self._meter(connection, api_key, client_id, len(frame) - offset)
        if api_key == HEARTBEAT and meter is None:
            answer = self._heartbeat(connection, frame, version, client_id, offset)
            if answer is not None:
                return answer
        is_question = api_key in QUESTIONS and meter is None and len(frame) <= QUESTION_MAX
        if is_question:
            answer = self._questions.answer(connection, api_key, client_id, owner, frame, offset)
            if answer is not None:
                return answer
        call = Call(api_key, version, correlation_id, client_id, connection, self._answered, self._long)
        request = None
        if meter is None:
            request = self._handle(call, frame, offset, connection)
        else:
            call.meter = meter
            meter.begin()
            try:
                self._handle(call, frame, offset, connection)
            finally:
                meter.end()
        outcome = call.take(connection.send)
        if outcome is None:
            connection.wait_for(call)
        elif api_key == CONSUMER_HEARTBEAT:
            connection.beat = None if request is None else beat_of(self._services, frame, version, request, outcome)
        elif is_question and call.may_repeat and isinstance(outcome, bytes):
            self._questions.keep(connection, call, owner, frame, offset, outcome)
        return outcome

    def _meter(self, connection: Connection, api_key: int, client_id: str | None, size: int) -> Meter | None:
        """The meter of a request, if its client has a quota. size: of its body."""
        throttle = self._services.throttle
        if throttle.counts_time_of(connection.principal):
            connection.may_short_cut = False
        meter = throttle.meter(connection.principal, client_id, api_key, size)
        if meter is not None:
            meter.mute = connection.throttle
        return meter

    def handle(self, caller: Caller, frame: bytes) -> Call:
        """Begin a call for a request without a connection. Raises ProtocolError if the request breaks the protocol."""
        api_key, version, correlation_id, client_id, offset = decode_request_header(frame)
        call = Call(api_key, version, correlation_id, client_id, caller, self._answered, self._long)
        self._handle(call, frame, offset, None)
        return call

    def versions(self, connection: Connection, header: RequestHeader, frame: bytes) -> bytes:
        """The answer to an ApiVersions, for a client that may do nothing else yet."""
        api_key, version, correlation_id, client_id, _ = header
        call = Call(api_key, version, correlation_id, client_id, connection, self._answered, self._long)
        if _speaks(header.api_version):
            call.services = self._services
            api_versions(call, decode(ApiVersionsRequest, frame, header.api_version, header.body_offset))
        else:
            refuse_api_versions(call)
        answer = call.take(lambda _: None)  # it is there at once
        assert isinstance(answer, bytes)
        return answer

    def call_of(self, caller: Caller, frame: bytes) -> Call:
        """The call for a request that no handler gets: the caller answers it."""
        api_key, version, correlation_id, client_id, _ = decode_request_header(frame)
        return Call(api_key, version, correlation_id, client_id, caller, self._answered, self._long)

    def _handle(self, call: Call, frame: bytes, offset: int, connection: Connection | None) -> Any:
        """Hand a request to its handler. Returns the request; None if it is decoded in steps.

        offset: where its body starts. connection: None if it came through none.
        """
        api_key = call.api_key
        if api_key == API_VERSIONS and not _speaks(call.api_version):
            refuse_api_versions(call)
            return None
        known = self._handlers.get(api_key)
        if known is None:
            known = self._handlers[api_key] = handler(api_key), request_class(api_key)
        handle, request_type = known
        call.services = self._services
        if len(frame) > DECODED_IN_STEPS_ABOVE:
            call.work(self._in_steps(handle, request_type, call, frame, offset, connection))
            return None
        request: Any = decode(request_type, frame, call.api_version, offset)
        if api_key == OFFSET_COMMIT and connection is not None:
            self._remember(connection, frame, offset, call, request)
        steps = handle(call, request)
        if steps is not None:
            call.in_steps = True
            call.work(steps)
        return request

    def _in_steps(
        self,
        handle: Handler,
        request_type: type[Message],
        call: Call,
        frame: bytes,
        offset: int,
        connection: Connection | None,
    ) -> Steps:
        """Decode and handle a large request."""
        elements_max = self._services.config.request_max_elements
        request: Any = yield from decode_in_steps(request_type, frame, call.api_version, offset, elements_max)
        if len(frame) > STEPS_ABOVE:
            call.in_steps = True
            if connection is not None:
                connection.commit = None
        elif call.api_key == OFFSET_COMMIT and connection is not None:
            self._remember(connection, frame, offset, call, request)
        steps = handle(call, request)
        if steps is not None:
            call.in_steps = True
            yield from steps

    def _remember(
        self, connection: Connection, frame: bytes, offset: int, call: Call, request: OffsetCommitRequest
    ) -> None:
        """Keep a commit for the next one, unless a right is missing or this connection's commits always differ."""
        last = connection.commit
        if last is not None and last.is_used:
            connection.unlike_commits = 0
        connection.commit = None
        if (
            connection.unlike_commits < UNLIKE_MAX
            and has_names(self._services, frame, call.api_version, request)
            and self._may_commit(call.client, request)
        ):
            connection.unlike_commits += 1
            connection.commit = commit_of(
                self._services, frame, offset, call.api_version, call.client, request, connection.send
            )

    def _may_commit(self, client: Client, request: OffsetCommitRequest) -> bool:
        """Whether nothing of a commit will be refused for want of a right: a kept one is taken without a question."""
        access = self._services.access
        if access.is_open:
            return True
        asked = [(Kind.GROUP, request.group_id), *((Kind.TOPIC, topic.name) for topic in request.topics)]
        return all(
            access.allows(client.principal, client.host[1:], Operation.READ, kind, name, is_logged=False)
            for kind, name in asked
        )

    def heartbeats_of(self, owner: str) -> Heartbeats:
        """The kept heartbeats of clients with the same rights."""
        found = self._heartbeats.get(owner)
        if found is None:
            if len(self._heartbeats) >= OWNERS_MAX:
                self.forget()
            found = self._heartbeats[owner] = heartbeats_of(self._services)
        return found

    def forget(self) -> None:
        """Drop all kept heartbeats: dispatch has to answer each once more."""
        while self._heartbeats:
            self._heartbeats.popitem()[1].forget()

    def _heartbeat(
        self, connection: Connection, frame: bytes, version: int, client_id: str | None, offset: int
    ) -> bytes | None:
        """The answer to a heartbeat; None if it needs an event, or its client may not read the group."""
        request = decode(HeartbeatRequest, frame, version, offset)
        group_id = request.group_id
        access = self._services.access
        if not access.is_open:
            client = connection.client(client_id)
            if not access.allows(
                client.principal, client.host[1:], Operation.READ, Kind.GROUP, group_id, is_logged=False
            ):
                return None
        partition = self._services.runtime.partition_of(group_id)
        error = partition.heartbeat(group_id, request.member_id, request.group_instance_id, request.generation_id)
        if error is None:
            return None
        if not error:
            group = partition.coordinator.groups[group_id]
            if isinstance(group, Group):
                member = group.members.get(request.member_id)
                # A standby may become a member at any time, so nothing of it is kept.
                if member is not None:
                    connection.heartbeats.remember(frame, version, group, member)
        self._services.measures.answers[HEARTBEAT, int(error)] += 1
        head, tail = template(version, error)
        return head + frame[CORRELATION_ID] + tail
