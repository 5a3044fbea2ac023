"""The port to real etcd servers, over gRPC.

**Sticky endpoint.** All calls go to one member of etcd. A try that fails (no answer within TRY_S, no connection, no
leader) moves the client to the next member. It also ends the watches, and their users begin them again there. Spreading
calls over the members would be wrong: while one of them is frozen, every third call would wait for it in vain.

**One try.** gRPC retries nothing here, and neither does the client: only the caller knows whether a second try could
do the work twice.

gRPC calls back on threads of its own; the client takes each outcome to the engine's thread (`Loop`). If the process has
no room for one more thread, the call is lost like any other.

House rule: what an answer means for the log is decided elsewhere.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from time import monotonic
from typing import Any, NamedTuple

import grpc
from grpc import _channel as grpc_channel

from coordinator.log.cluster import RecentCalls
from coordinator.log.cluster.keys import prefix_end
from coordinator.log.cluster.loop import Loop, now_ms
from coordinator.log.cluster.port import (
    Compacted,
    Compare,
    Delete,
    Done,
    Event,
    Get,
    KeyValue,
    Lost,
    OnEnd,
    OnEvents,
    Page,
    Put,
    Rejected,
    Status,
    Target,
    Txn,
    TxnResult,
)
from coordinator.log.etcd.messages import CREATE_REVISION, DELETED, MESSAGES, MOD_REVISION, PACKAGE, VALUE, message
from coordinator.log.segments.counts import Histogram

TRY_S = 1.0
"""How long one try may take. A member that is alive answers within milliseconds, an election ends within two tries."""
RECEIVED_MAX = 64 * 1024 * 1024
"""The largest answer that the client takes, in bytes."""
OPERATIONS_MAX = 126
"""A transaction of etcd has at most 128 operations (its flag --max-txn-ops), and the same in those nested in it."""
NESTED = 64
"""More operations than that go into nested transactions of this size each: 64 times 64 fit the same flag."""
THREADLESS_MS = 100
"""When a watch without a thread ends, so that its caller, who watches anew at once, doesn't do so all the time."""
PING_MS = 10_000
"""How often gRPC looks whether an idle connection lives. etcd closes connections that ask more often than every 5 s."""

_TARGETS = {Target.CREATE_REVISION: CREATE_REVISION, Target.MOD_REVISION: MOD_REVISION, Target.VALUE: VALUE}

_REFUSALS = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.OUT_OF_RANGE,
    grpc.StatusCode.UNIMPLEMENTED,
}
"""Codes of errors that are no reason to ask another member. After any other one the outcome is unknown."""

TOKEN_IS_OLD = ("user name is empty", "revision of auth store is old")
"""etcd's words for a call whose token it doesn't take any more; the latter if users or roles have changed since."""
USERS_ARE_OFF = "authentication is not enabled"
"""etcd's words for a login before its users are switched on. They may be later: the client then logs in."""
HINTS = {
    "user name is empty": ": etcd has users, and tenure.store.user names none",
    "authentication failed": ": tenure.store.user or tenure.store.password.file is wrong",
    "permission denied": ": the user in tenure.store.user may not read and write the keys of tenure.cluster",
    "Handshake read failed": ": does etcd speak TLS, as tenure.store.ssl.truststore.location says?",
}
"""The settings that etcd's words, or gRPC's, are about."""
UNREACHED = re.compile(r"Failed to connect to remote host: ([^;]+?)(?: \([^)]*\))?$")
UNTRUSTED = re.compile(r"CERTIFICATE_VERIFY_FAILED(?:: ([\w ]+))?")
TLS_PROBLEM = "TLS: "
"""How the reason of a call begins that was lost because one side refused the other one's certificate."""


class Access(NamedTuple):
    """How to reach the members.

    endpoints: HOST:PORT of each. ca, certificate, key: files in PEM for TLS; without a ca, plaintext. user, password:
    of etcd's own users.
    """

    endpoints: Sequence[str]
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    user: str = ""
    password: str = ""


class _Member:
    """The channel to one member, with a function for each call.

    lacks_thread: gRPC could not start the thread of the channel, and counts it as started.
    """

    def __init__(self, access: Access, endpoint: str) -> None:
        options = [
            ("grpc.max_receive_message_length", RECEIVED_MAX),
            ("grpc.enable_retries", 0),
            ("grpc.keepalive_time_ms", PING_MS),
            ("grpc.max_reconnect_backoff_ms", 500),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.enable_http_proxy", 0),
        ]
        if access.ca is None:
            self.channel = grpc.insecure_channel(endpoint, options)
        else:
            key = access.key.read_bytes() if access.key else None
            chain = access.certificate.read_bytes() if access.certificate else None
            credentials = grpc.ssl_channel_credentials(access.ca.read_bytes(), key, chain)
            self.channel = grpc.secure_channel(endpoint, credentials, options)
        self.endpoint = endpoint
        self.lacks_thread = False

    def begin(self, call: Callable[[], Any]) -> Any:
        """Have gRPC begin a call. Raises RuntimeError if there is no room for a thread."""
        try:
            if self.lacks_thread:
                # gRPC never tries that again by itself: no later call of this channel would have an outcome.
                grpc_channel._run_channel_spin_thread(self.channel._call_state)  # noqa: SLF001 - it has no public way
                self.lacks_thread = False
            return call()
        except RuntimeError:
            self.lacks_thread = True
            raise

    def function(self, method: str, request: str, *, streams: bool = False) -> Any:
        """The function for a call; `request` names both messages. streams: in both directions."""
        encode, decode = MESSAGES[f"{request}Request"].SerializeToString, MESSAGES[f"{request}Response"].FromString
        make = self.channel.stream_stream if streams else self.channel.unary_unary
        return make(f"/{PACKAGE}.{method}", encode, decode)


SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
"""Upper ends of the buckets for answers; no try takes longer than TRY_S."""
SLOT_S, KEPT_S = 10, 60
SLOW_S = 0.1
"""etcd itself logs a request that takes longer ("apply request took too long")."""


class Recent:
    """The times that the answers took in the last minute: whether etcd is slow at present, as no histogram says.

    Calls are counted in slots of SLOT_S, and slots older than KEPT_S don't count. One thread writes, any thread reads,
    without a lock.
    """

    def __init__(self) -> None:
        self._slots: dict[int, RecentCalls] = {}

    def add(self, now_s: float, took_s: float, *, lost: bool = False) -> None:
        """Count a call that ended now. lost: it had no answer."""
        slot = int(now_s // SLOT_S)
        calls, slow, gone, longest_ms = self._slots.get(slot, RecentCalls())
        now = RecentCalls(calls + 1, slow + (took_s > SLOW_S), gone + lost, max(longest_ms, round(took_s * 1_000)))
        if slot not in self._slots:
            self._slots = {number: old for number, old in self._slots.items() if number > slot - KEPT_S // SLOT_S}
        self._slots[slot] = now

    def read(self, now_s: float) -> RecentCalls:
        """The calls of the last KEPT_S."""
        since = now_s // SLOT_S - KEPT_S // SLOT_S
        slots = [each for number, each in list(self._slots.items()) if number > since]
        return RecentCalls(
            sum(each.calls for each in slots),
            sum(each.slow for each in slots),
            sum(each.lost for each in slots),
            max((each.longest_ms for each in slots), default=0),
        )


class Calls:
    """Counts of the calls. made: by what was asked. lost: tries without an answer. seconds: until an answer came.

    recent: those of the last minute.
    """

    def __init__(self) -> None:
        self.made: Counter[str] = Counter()
        self.lost = 0
        self.seconds = Histogram(SECONDS)
        self.recent = Recent()

    def answered(self, took_s: float) -> None:
        """Count an answer that came after so long."""
        self.seconds.add(took_s)
        self.recent.add(monotonic(), took_s)


class Client:
    """See the module, and `port.Port`. Belongs to the thread of `loop`. calls: counts, for any thread."""

    store = "etcd"

    def __init__(self, access: Access, loop: Loop) -> None:
        # Before the first channel: a server that forks workers has none, and gRPC must not guard against it.
        os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
        self._access = access
        self._loop = loop
        self._members = [_Member(access, endpoint) for endpoint in access.endpoints]
        self._calls: dict[tuple[int, str], Any] = {}
        self._chosen = 0
        self._token = ""
        self._watches: dict[int, Callable[[], None]] = {}
        self._watch_number = 0
        self.calls = Calls()

    @property
    def endpoint(self) -> str:
        """The member that gets the calls now."""
        return self._members[self._chosen].endpoint

    @property
    def size(self) -> int:
        """How many members it knows."""
        return len(self._members)

    def close(self) -> None:
        """Close all channels; calls under way end as lost."""
        for member in self._members:
            with suppress(RuntimeError):  # without its thread, a channel would wait for its calls for ever
                member.begin(member.channel.close)

    def now_ms(self) -> int:
        """See Port."""
        return now_ms()

    def later(self, delay_ms: int, callback: Callable[[], None]) -> Callable[[], None]:
        """See Port."""
        return self._loop.later(delay_ms, callback)

    def txn(self, txn: Txn, done: Done[TxnResult]) -> None:
        """See Port. More operations than etcd takes go into nested transactions."""
        request = message(
            "TxnRequest",
            compare=[_compare(each) for each in txn.compares],
            success=_operations(txn.success),
            failure=_operations(txn.failure),
        )
        self._ask("KV/Txn", "Txn", request, done, _txn_result)

    def range(
        self,
        start: bytes,
        end: bytes,
        done: Done[Page | Compacted],
        *,
        limit: int,
        revision: int = 0,
        keys_only: bool = False,
    ) -> None:
        """See Port."""
        request = message("RangeRequest", key=start, range_end=end, limit=limit, revision=revision, keys_only=keys_only)

        def told(outcome: Page | Lost | Rejected) -> None:
            if isinstance(outcome, Rejected) and outcome.code == grpc.StatusCode.OUT_OF_RANGE.value[0]:
                done(Compacted())
            else:
                done(outcome)

        self._ask("KV/Range", "Range", request, told, _page)

    def grant(self, ttl_s: int, done: Done[int]) -> None:
        """See Port."""
        self._ask("Lease/LeaseGrant", "LeaseGrant", message("LeaseGrantRequest", TTL=ttl_s), done, lambda got: got.ID)

    def keep_alive(self, lease: int, done: Done[int]) -> None:
        """See Port."""
        request = message("LeaseKeepAliveRequest", ID=lease)
        index, began = self._chosen, monotonic()
        self.calls.made["LeaseKeepAlive"] += 1
        stream = self._members[index].function("Lease/LeaseKeepAlive", "LeaseKeepAlive", streams=True)

        def read(call: Any) -> None:
            try:
                ttl = next(call).TTL
            except (grpc.RpcError, StopIteration) as error:
                self._loop.call(self._failed, index, error, done, monotonic() - began)
            else:
                took_s = monotonic() - began
                call.cancel()
                self._loop.call(self._kept, done, ttl, took_s)

        try:
            call = self._members[index].begin(lambda: stream(iter([request]), timeout=TRY_S, metadata=self._metadata()))
            Thread(target=read, args=(call,), name="etcd-lease", daemon=True).start()
        except RuntimeError as error:
            self._loop.call(done, Lost(str(error)))

    def _kept(self, done: Done[int], ttl: int, took_s: float) -> None:
        self.calls.answered(took_s)
        done(ttl)

    def revoke(self, lease: int, done: Done[None]) -> None:
        """See Port."""
        self._ask("Lease/LeaseRevoke", "LeaseRevoke", message("LeaseRevokeRequest", ID=lease), done, lambda _got: None)

    def compact(self, revision: int, done: Done[None]) -> None:
        """See Port."""
        self._ask("KV/Compact", "Compaction", message("CompactionRequest", revision=revision), done, lambda _got: None)

    def status(self, done: Done[Status]) -> None:
        """See Port."""
        self._ask("Maintenance/Status", "Status", message("StatusRequest"), done, _status)

    def watch(self, prefix: bytes, from_revision: int, on_events: OnEvents, on_end: OnEnd) -> Callable[[], None]:
        """See Port."""
        create = message("WatchCreateRequest", key=prefix, range_end=prefix_end(prefix), start_revision=from_revision)
        ended = Flag()
        requests = _until(ended, message("WatchRequest", create_request=create))
        member = self._members[self._chosen]
        stream = member.function("Watch/Watch", "Watch", streams=True)
        calls: list[Any] = []
        self._watch_number += 1
        number = self._watch_number

        def end(outcome: Lost | Compacted | None) -> None:
            if not ended.is_set():
                ended.set()
                self._watches.pop(number, None)
                for call in calls:
                    call.cancel()
                if outcome is not None:
                    on_end(outcome)

        def told(events: list[Event], revision: int) -> None:
            if not ended.is_set():
                on_events(events, revision)

        def read(call: Any) -> None:
            outcome: Lost | Compacted = Lost("the watch ended")
            try:
                for answer in call:
                    if answer.canceled:
                        outcome = Compacted() if answer.compact_revision else Lost(answer.cancel_reason)
                        break
                    if not answer.created:
                        events = [Event(_key_value(each.kv), each.type == DELETED) for each in answer.events]
                        self._loop.call(told, events, answer.header.revision)
            except grpc.RpcError as error:
                outcome = Lost(_text(error))
            self._loop.call(end, outcome)

        self._watches[number] = partial(end, Lost("the client goes to another member"))
        try:
            calls.append(member.begin(lambda: stream(requests, metadata=self._metadata())))
            Thread(target=read, args=tuple(calls), name="etcd-watch", daemon=True).start()
        except RuntimeError as error:
            # Later: the caller watches anew at once.
            self._loop.later(THREADLESS_MS, partial(end, Lost(str(error))))
        return partial(end, None)

    def _ask(self, method: str, name: str, request: Any, done: Done[Any], result: Callable[[Any], Any]) -> None:
        """Make one call to the chosen member."""
        index = self._chosen
        function = self._calls.get((index, method))
        if function is None:
            function = self._calls[index, method] = self._members[index].function(method, name)
        try:
            call = self._members[index].begin(
                lambda: function.future(request, timeout=TRY_S, metadata=self._metadata())
            )
        except ValueError:  # the channel is closed
            self._loop.call(done, Lost("the client is closed"))
            return
        except RuntimeError as error:
            self._loop.call(done, Lost(str(error)))
            return
        self.calls.made[name] += 1
        began = monotonic()
        call.add_done_callback(lambda _: self._loop.call(self._told, index, call, began, done, result))

    def _told(self, index: int, call: Any, began: float, done: Done[Any], result: Callable[[Any], Any]) -> None:
        try:
            answer = call.result()
        except (grpc.RpcError, grpc.FutureCancelledError) as error:
            self._failed(index, error, done, monotonic() - began)
        else:
            self.calls.answered(monotonic() - began)
            done(result(answer))

    def _failed(self, index: int, error: Exception, done: Done[Any], took_s: float) -> None:
        """A try failed after so long: say how, and go to the next member if this one may be the reason."""
        code = error.code() if isinstance(error, grpc.RpcError) else None
        if code is grpc.StatusCode.UNAUTHENTICATED or (
            self._access.user
            and code is grpc.StatusCode.INVALID_ARGUMENT
            and any(words in _text(error) for words in TOKEN_IS_OLD)
        ):
            self.log_in(lambda _outcome: done(Lost("the client logs in anew")))
            return
        if code in _REFUSALS:
            assert code is not None
            done(Rejected(_text(error), code.value[0]))
            return
        self._leave(index)
        self.calls.lost += 1
        self.calls.recent.add(monotonic(), took_s, lost=True)
        done(Lost(_text(error)))

    def _leave(self, index: int) -> None:
        """Go on with the member after this one."""
        if index == self._chosen:
            self._chosen = (index + 1) % len(self._members)
            for end in list(self._watches.values()):
                end()

    def _metadata(self) -> list[tuple[str, str]]:
        return [("token", self._token)] if self._token else []

    @property
    def is_known(self) -> bool:
        """Whether etcd knows this client's user; True without a user."""
        return bool(self._token) or not self._access.user

    def log_in(self, done: Done[None]) -> None:
        """Get a token, if the client has a user, and etcd has users. The first call of all."""
        if self._access.user:
            self._token = ""
            request = message("AuthenticateRequest", name=self._access.user, password=self._access.password)

            def told(outcome: str | Lost | Rejected) -> None:
                if isinstance(outcome, str):
                    self._token = outcome
                    done(None)
                elif isinstance(outcome, Rejected) and USERS_ARE_OFF in outcome.reason:
                    done(None)
                else:
                    done(outcome)

            self._ask("Auth/Authenticate", "Authenticate", request, told, lambda got: got.token)
        else:
            done(None)


def _until(ended: Flag, request: Any) -> Iterator[Any]:
    """The requests of a watch: one, and then none until the end."""
    yield request
    ended.wait()


def _text(error: Exception) -> str:
    if isinstance(error, grpc.RpcError):
        details = str(error.details() or "")
        hint = next((hint for words, hint in HINTS.items() if words in details), "")
        if unreached := UNREACHED.search(details):  # gRPC's words have the address three times
            details = f"no connection, {unreached[1]}"
        return _tls_text(details) or f"{error.code().name}: {details}{hint}"
    return repr(error)


def _tls_text(details: str) -> str:
    """The words for a refused certificate; "" for anything else."""
    if found := UNTRUSTED.search(details):
        why = f" ({found[1]})" if found[1] else ""
        return f"{TLS_PROBLEM}etcd's certificate isn't valid by tenure.store.ssl.truststore.location{why}"
    if "Hostname Verification Check failed" in details:
        return f"{TLS_PROBLEM}etcd's certificate doesn't name the address in tenure.store"
    if "TSI_DATA_CORRUPTED" in details:  # an alert right behind the handshake
        return f"{TLS_PROBLEM}etcd accepts no certificate of this node (tenure.store.ssl.keystore.location)"
    return ""


def _compare(compare: Compare) -> Any:
    target = compare.target  # its value is etcd's name of the field
    return message("Compare", key=compare.key, target=_TARGETS[target], **{target.value: compare.value})


def _operation(operation: Put | Delete | Get) -> Any:
    if isinstance(operation, Put):
        key, value, lease = operation
        return message("RequestOp", request_put=message("PutRequest", key=key, value=value, lease=lease))
    if isinstance(operation, Delete):
        return message("RequestOp", request_delete_range=message("DeleteRangeRequest", key=operation.key))
    return message("RequestOp", request_range=message("RangeRequest", key=operation.key))


def _operations(operations: Sequence[Put | Delete | Get]) -> list[Any]:
    made = [_operation(each) for each in operations]
    if len(made) <= OPERATIONS_MAX:
        return made
    parts = [made[start : start + NESTED] for start in range(0, len(made), NESTED)]
    return [message("RequestOp", request_txn=message("TxnRequest", success=part)) for part in parts]


def _key_value(kv: Any) -> KeyValue:
    return KeyValue(kv.key, kv.value, kv.create_revision, kv.mod_revision, kv.lease)


def _gets(responses: Any) -> list[KeyValue | None]:
    gets: list[KeyValue | None] = []
    for response in responses:
        if response.HasField("response_range"):
            kvs = response.response_range.kvs
            gets.append(_key_value(kvs[0]) if kvs else None)
        elif response.HasField("response_txn"):
            gets += _gets(response.response_txn.responses)
    return gets


def _txn_result(answer: Any) -> TxnResult:
    return TxnResult(answer.succeeded, answer.header.revision, _gets(answer.responses))


def _page(answer: Any) -> Page:
    return Page(answer.header.revision, [_key_value(kv) for kv in answer.kvs], answer.more)


def _status(answer: Any) -> Status:
    alarms = [name for name in ("NOSPACE", "CORRUPT") if any(name in error for error in answer.errors)]
    return Status(answer.version, answer.dbSize, answer.dbSizeInUse, alarms)
