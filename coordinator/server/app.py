"""The server, put together: store, runtime, topics, listeners. It starts and stops them.

`Server` also runs inside a test, with a clock, a source of ids and a store of the test's. Clock and chance enter here
and nowhere below.

Start: take the addresses, open the store, let connections in; the partitions load in the background. Stop: hand the
partitions over to the other nodes of a cluster, take no connection and no request, send the answers whose records are
on the way, close the connections, and let the logs write the rest. Each step has a time limit: a disk that hangs may
keep a thread for ever, and what was acknowledged is on disk already.

House rule: a server that can't start says why in one line (`StartFailed`).
"""

from __future__ import annotations

import asyncio
import errno
import socket
import sys
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from os import urandom
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TextIO
from uuid import UUID

from coordinator.config import (
    HTTP,
    INT32_MAX,
    SASL_PROTOCOLS,
    Config,
    ConfigError,
    Listener,
    served_listeners,
    tls_listeners,
)
from coordinator.group.effects import Resolution
from coordinator.log.advice import explain
from coordinator.log.cluster import Cluster, NodeAddresses
from coordinator.log.engine import Engine, EngineError
from coordinator.log.segments.segment import OFFSETS_TOPIC
from coordinator.log.store import OpenStore, Store, open_store
from coordinator.log.topics.folders import partitions_of
from coordinator.log.topics.list import ACLS, BROKERS, ENTRIES, GROUPS, QUOTAS, Topic
from coordinator.loop.clock import Alarm, Clock, LoopClock, busy_ns
from coordinator.loop.lines import Lines
from coordinator.loop.pace import Pace
from coordinator.security.acls import Kind, Operation
from coordinator.server.idle_acls import warn_of_idle_acls
from coordinator.server.nodes.broker_settings import Changes, changed_config, changes_of
from coordinator.server.nodes.cluster_topics import ClusterTopics
from coordinator.server.nodes.discovery import Discovery, node_addresses
from coordinator.server.nodes.events_topic import Events, into_topic
from coordinator.server.nodes.group_settings import SettingsOfGroups
from coordinator.server.nodes.topic_data import TopicData
from coordinator.server.nodes.topic_view import Searches, TopicView
from coordinator.server.nodes.topics import Change, ChangeDone, Topics, at_once, changed
from coordinator.server.relay import Link
from coordinator.server.risks import warn_of_risks
from coordinator.server.runtime.gate import TakeNotes
from coordinator.server.runtime.kinds import LogKind
from coordinator.server.runtime.partition import Standing
from coordinator.server.runtime.runtime import Runtime
from coordinator.server.telemetry.authorizer_lines import access_of
from coordinator.server.telemetry.log_reports import report
from coordinator.server.telemetry.measures import Measures
from coordinator.server.telemetry.note_lines import NoteLines
from coordinator.server.transactions import Transactions
from coordinator.server.wire.api import Api
from coordinator.server.wire.call import Call, Services, ring
from coordinator.server.wire.listener import Connections, bind
from coordinator.server.wire.throttle import Throttle
from coordinator.story.schema import EVENTS_TOPIC

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from coordinator.client.security import Security
    from coordinator.server.faults.faults import Faults
    from coordinator.server.in_process import InProcess
    from coordinator.server.sasl import Sasl
    from coordinator.server.telemetry.statsd import Statsd
    from coordinator.server.wire.certificates import Certificates
    from coordinator.server.wire.tls import Plain, TlsTransport
    from coordinator.site.site import Site

STOP_WITHIN_S = 10.0
"""How long a stop waits for the appends of all logs, and after that for clients to take their answers."""
LEAVE_WITHIN_S = 5.0
"""How long a stop waits until the partitions are handed over. Other nodes take the rest by themselves, once they notice
that this node is gone.
"""
CLOSE_WITHIN_S = 5.0
"""How long it then waits for each thread that uses the disk. By then the thread is idle, or it hangs."""


def random_id() -> str:
    """The text of a random UUID (RFC 9562, version 4). Each join needs one; uuid4 takes more than twice as long."""
    digits = urandom(16).hex()
    variant = "89ab"[int(digits[16], 16) & 3]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


class StartFailed(Exception):
    """The reason that the server can't start, in one line."""


FILES_PER_PARTITION = 2
"""Files that a partition keeps open: its lock and its newest segment."""
CONNECTIONS_MIN = 16
"""A server with fewer connections than this can't serve a few clients with two connections each, so it doesn't start.
"""
FILES_KEPT = 64
"""Files for everything else: listeners, the loop, log lines, modules that are imported late."""

Bound = list[tuple[Listener, socket.socket]]
"""Bound sockets, each with its listener."""


class WorkerPart(NamedTuple):
    """The part of a server that a worker gets from its supervisor, which has locked and read the data folder.

    bound: the sockets of this worker. nodes: all workers, in their order. topics: the list that the supervisor keeps.
    silent_nodes: the ids of nodes whose workers don't answer the supervisor, as it changes. present, leading: as in
    Discovery. peers: the way to the other nodes; None if there is none. certificates, on_certificates: see
    `Certificates`, `last` and `on_loaded`.
    """

    bound: Bound
    nodes: Sequence[NodeAddresses]
    topics: Topics
    silent_nodes: Collection[int]
    present: Sequence[int] | None = None
    leading: Sequence[int] | None = None
    peers: Link | None = None
    certificates: Certificates | None = None
    on_certificates: Callable[[], object] = lambda: None


class Server:
    """One coordinator.

    clock: the loop's by default. clients_clock: of the times that clients measure too (waits that they ask for, idle
    connections) and of the loop's turns, for a test that moves `clock`; by default `clock`.
    fresh_id: makes texts of random UUIDs. opened: opens the store (log.store), by default the data folder.
    log: takes log lines. on_loaded: called once, when all partitions are loaded.
    warnings: of the configuration, for the log. files_max: how many files the process may have open, None for no limit.
    share: of a worker. on_notes: called with durable notes, after their log lines. faults: planned by
    a test.

    addresses: of the listeners for clients. ports: of all listeners, that of HTTP too.
    loaded: set when all partitions are loaded. failed: set when the log can never be written again.
    hanging: logs whose disk hung when the server stopped; their threads are still there.
    """

    def __init__(
        self,
        config: Config,
        *,
        clock: Clock | None = None,
        clients_clock: Clock | None = None,
        fresh_id: Callable[[], str] = random_id,
        opened: OpenStore = open_store,
        log: TextIO | None = None,
        on_loaded: Callable[[], None] = lambda: None,
        warnings: Sequence[str] = (),
        files_max: int | None = None,
        share: WorkerPart | None = None,
        on_notes: TakeNotes | None = None,
        faults: Faults | None = None,
    ) -> None:
        self._config = config
        self._files_max = files_max
        self._clock = clock
        self._clients_clock = clients_clock
        self._fresh_id = fresh_id
        self._open_store = opened
        self._log = log
        self._on_loaded = on_loaded
        self._warnings = warnings
        self._share = share
        self._on_notes = on_notes
        self._faults = faults
        self._sockets: Bound = share.bound if share is not None else []
        self._servers: list[asyncio.Server] = []
        self._loop: asyncio.AbstractEventLoop
        self._store: Store | None = None
        self.events: Events
        self._lines: Lines
        self._site: Site | None = None
        self._statsd: Statsd | None = None
        self.certificates: Certificates | None = None
        self._searches: Searches | None = None
        # The registration in a cluster after which this node has had all the partitions that it should have.
        self._joined = 0
        self._sasl: Sasl | None = None
        self._topics: Topics
        self._changes = Changes({}, {})
        self._group_settings = SettingsOfGroups()
        self.runtime: Runtime
        self.connections: Connections
        self._api: Api
        self._discovered: Discovery
        self.data: TopicData | None = None
        self.transactions: Transactions | None = None
        self.addresses: list[tuple[str, int]] = []
        self.ports: list[int] = []
        self.loaded = asyncio.Event()
        self.failed = asyncio.Event()
        self.hanging: list[str] = []

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the first listener."""
        return self.addresses[0]

    # Start.

    async def start(self) -> None:
        """Accept requests. Raises StartFailed."""
        config = self._config
        self._loop = asyncio.get_running_loop()
        clock = self._clock or LoopClock(self._loop)
        clients_clock = self._clients_clock or clock
        pace = Pace(clients_clock, self._loop.call_soon)
        self._lines = Lines(self._log or sys.stderr, config.log_format, config.node_id, clock)
        for warning in self._warnings:
            self._lines.warn("setting_ignored", warning)
        if self._share is None:  # of several workers, their supervisor warns
            warn_of_risks(config, self._lines)
        self.events = Events(clients_clock, self._lines)
        measures = Measures(config.metrics_groups_max)
        try:
            self.certificates = certificates_of(config, share=self._share)
            if self._share is None:
                self._sockets = bind_all(config)
            # On a thread: a disk that hangs must not keep a signal from ending the start.
            opening = self._loop.run_in_executor(
                None, self._open_store, config, self._fresh_uuid, self._report, measures.logs["groups"]
            )
            self._store = store = await opening
        except BaseException as error:
            self._close_sockets()
            if isinstance(error, ConfigError | EngineError | OSError):
                raise StartFailed(reason(error)) from error
            raise
        for name, fields in store.notices:
            report(self._lines, name, **fields)
        take_notes: list[TakeNotes] = [NoteLines(self._lines).take, measures.take]
        if config.events_enable:
            take_notes.append(self.events.take)
        if self._on_notes is not None:
            take_notes.append(self._on_notes)
        soon, wake = self._loop.call_soon, self._loop.call_soon_threadsafe
        self.runtime = Runtime(config, store.engine, clock, self._lines, take_notes, soon, wake, pace, self._loaded)

        def runtime_of(engine: Engine, kind: LogKind) -> Runtime:
            return Runtime(config, engine, clock, self._lines, take_notes, soon, wake, pace, self._abort_left, kind)

        if store.cluster is not None:
            self.events.in_cluster = True
            self.runtime.lease = store.cluster.valid
            self.runtime.has_room = store.cluster.has_room
            self.runtime.verify = store.cluster.ask_whether_newest if config.offset_fetch_verify == "quorum" else None
        try:
            self.runtime.start()
            services = self._services(store, clock, Alarm(clients_clock, ring), pace, measures, runtime_of)
            services.transactions.start()
            self._api = Api(services)
            self._topics.on_entry = partial(self._entry_changed, services, store)
            self._show_topics(services, clock)
            self.connections = Connections(
                config,
                clients_clock,
                self._lines,
                self._api.dispatch,
                self._loop.call_soon,
                pace,
                measures,
                self._connections_max(),
            )
            if has_sasl(config):
                await self._start_sasl(clients_clock, measures)
            for entry in ENTRIES.values():
                at_once(self._topics.on_entry(self._topics.entry(entry)))
            if self._faults is not None:
                self._faults.attach(
                    self._api,
                    self.connections,
                    self.runtime.instance_of,
                    services.discovery.name_of,
                    clock,
                    self._lines,
                    self._loop.call_soon,
                )
            events_topic = services.discovery.events
            if events_topic is not None:
                write = into_topic(services.data, events_topic, clock, config.node_id)
                self.events.start(write, self.connections.has)
            await self._open_listeners(services)
            if store.cluster is not None:
                store.cluster.register(node_addresses(config, addresses_of(self._sockets)))
            if config.statsd is not None:
                from coordinator.server.telemetry.statsd import Statsd  # noqa: PLC0415 - a server without it needs none

                self._statsd = Statsd(config.statsd, config, self.metrics(measures), self._lines)
                self._statsd.start()
        except BaseException as error:
            self._wind_down()
            await self._close()
            if isinstance(error, ConfigError | EngineError | OSError):
                raise StartFailed(reason(error)) from error
            raise

    def _show_topics(self, services: Services, clock: Clock) -> None:
        """Have groups of the consumer protocol see the topics, and their settings."""
        view = TopicView(self._topics)

        def shown(names: frozenset[str], created: bool) -> None:  # noqa: FBT001 - a callback
            view.changed(created=created)
            self.runtime.topics_changed(view, names)

        def may_see(what: Resolution, name: str) -> bool:
            access, client = services.access, what.client
            return access.is_open or access.allows(
                client.principal, client.host[1:], Operation.DESCRIBE, Kind.TOPIC, name, is_logged=False
            )

        self._searches = Searches(view, clock.wall_ms, self._loop.call_soon_threadsafe, services.pace.work, may_see)
        self.runtime.search = self._searches.search
        self._topics.on_changed = shown
        self.runtime.topics_changed(view, None)
        # Before the first group is loaded: its members' sessions begin then.
        at_once(self._configure_groups())

    def _configure_groups(self) -> Iterator[None]:
        """Put changed settings of groups into effect: see nodes.group_settings."""
        yield from self._group_settings.put_into_effect(self._config, self._topics.entry(GROUPS).configs)
        self.runtime.group_configs_changed(self._group_settings.by_group, self._group_settings.changed)

    async def _start_sasl(self, clock: Clock, measures: Measures) -> None:
        """Have clients of listeners with SASL authenticate. Raises ConfigError."""
        from coordinator.server.sasl import Sasl  # noqa: PLC0415 - a server without it needs none

        hop = self._loop.call_soon_threadsafe
        self._sasl = Sasl(self._config, self._topics, self._api, clock, self._lines, measures, hop)
        await self._sasl.start()
        self.connections.door = self._sasl.door

    def _services(
        self,
        store: Store,
        clock: Clock,
        waits: Alarm[Call],
        pace: Pace,
        measures: Measures,
        runtime_of: Callable[[Engine, LogKind], Runtime],
    ) -> Services:
        """The services of handlers: nodes, topics, the topics' records."""
        discovery = self._discovery(store)
        hop, counts = self._loop.call_soon_threadsafe, measures.logs["topics"]
        self._discovered = discovery
        self.data = data = TopicData(
            self._config,
            clock,
            discovery,
            self._lines,
            store.folder,
            hop,
            pace,
            self.failed.set,
            counts,
            store.write_out,
        )
        if store.write_out is not None:
            self.runtime.on_durable = data.on_written(discovery.offsets)
        self._topics.on_deleted = self._topics_deleted
        self._topics.work = pace.work
        throttle = Throttle(self._config, waits.ms, busy_ns, measures)
        own = self._config, self._config, clock, self._fresh_id, self.runtime
        access = access_of(self._config, self._lines, clock)
        peers = None if self._share is None else self._share.peers
        self.transactions = Transactions(store, runtime_of, self.runtime, data, discovery, clock, peers)
        return Services(*own, discovery, waits, data, measures, pace, throttle, access, self.transactions)

    def _entry_changed(self, services: Services, store: Store, entry: Topic) -> Iterable[None]:
        """Put into effect what clients changed, at once or in steps: see nodes.topics.ENTRIES."""
        if entry.topic_id == BROKERS.topic_id:
            self._reconfigure(services, store)
        elif entry.topic_id == GROUPS.topic_id:
            return self._configure_groups()
        elif entry.topic_id == QUOTAS.topic_id:
            services.throttle.put_into_effect(entry.configs)
            self.connections.admission.put_into_effect(entry.configs)
            self._api.forget()
            self.connections.forget()
        elif entry.topic_id == ACLS.topic_id and not services.access.is_open:
            warn_of_idle_acls(services.access.set_rules(entry.configs), self._lines)
            self._api.forget()
            self.connections.forget()
        return ()

    def _reconfigure(self, services: Services, store: Store) -> None:
        """Put changed settings into effect: see nodes.broker_settings."""
        changes = changes_of(self._topics.entry(BROKERS).configs, self._config.node_id)
        if changes == self._changes:
            return
        self._changes = changes
        services.config = config = changed_config(self._config, changes)
        store.reconfigure(config)
        for user in (self.runtime, services.data, self.connections.admission):
            user.reconfigure(config)
        settings = {**changes.all_nodes, **changes.node}
        text = ", ".join(f"{name}={value}" for name, value in sorted(settings.items()))
        self._lines.info("settings_changed", f"Settings that clients changed: {text or 'none'}", settings=settings)

    async def _open_listeners(self, services: Services) -> None:
        """Open the listeners for clients, then the one for browsers."""
        if self.certificates is not None:
            self.certificates.start(self._clients_clock or services.clock, self._lines)
        self.ports = [listening.getsockname()[1] for _, listening in self._sockets]
        for listener, listening in self._sockets:
            if listener.name != HTTP:
                host, port = listening.getsockname()[:2]
                self.addresses.append((host, port))
                factory = partial(self.connections.connect, listener.name, self._securing(listener.name))
                backlog = self._config.socket_listen_backlog_size
                self._servers.append(await self._loop.create_server(factory, sock=listening, backlog=backlog))
        for listener, listening in self._sockets:
            if listener.name == HTTP:
                await self._open_http(listening, services)

    def _securing(self, listener: str) -> Callable[[Plain], TlsTransport] | None:
        """Puts the TLS of a listener under a connection; None if it has none."""
        if self.certificates is None or not self._config.has_tls(listener):
            return None
        return self.certificates.securing(listener, self.connections.handshakes)

    @property
    def trouble(self) -> str:
        """As Health."""
        return "the log can't be written any more" if self.failed.is_set() else ""

    @property
    def not_ready(self) -> str:
        """As Health."""
        if not self.loaded.is_set():
            return "groups are being loaded"
        if self.cluster is not None and (away := self._away_from(self.cluster)):
            return away
        failing = 0 if self.data is None else len(self.data.failing)
        partitions = "topic partition" if failing == 1 else "topic partitions"
        return f"{failing} {partitions} can't be written, see the log" if failing else ""

    def _away_from(self, cluster: Cluster) -> str:
        """Why this node doesn't do its part in a cluster; empty if it does.

        Once the node has had all partitions that it should have since it registered, only its own lease counts. If
        another node dies, all others get partitions: they must not become unready together.
        """
        if not cluster.valid():
            return "the store doesn't answer in time"
        registration, missing = cluster.share()
        if not registration:
            return "this node isn't registered"
        if registration != self._joined:
            loading = {each.index for each in self.runtime.partitions if each.standing is Standing.LOADING}
            if count := len(missing | loading):
                return f"{count} {'partition' if count == 1 else 'partitions'} of groups on the way to this node"
            self._joined = registration
        return ""

    def _connections_max(self) -> int:
        """How many connections the process's limit on files allows."""
        config = self._config
        if self._files_max is None:
            return INT32_MAX
        partitions = config.offsets_topic_num_partitions + config.transaction_state_log_num_partitions
        kept = FILES_PER_PARTITION * partitions + FILES_KEPT
        if config.http:
            kept += config.http_max_connections
        left = self._files_max - kept
        if left < CONNECTIONS_MIN:
            raise StartFailed(f"this process may have {self._files_max} files open (ulimit -n), it needs {kept} itself")
        return left

    @property
    def cluster(self) -> Cluster | None:
        """The nodes that share this server's store; None if none do, or before the start."""
        return None if self._store is None else self._store.cluster

    def _abort_left(self) -> None:
        """All of a log is loaded: end the transactions that nobody else will end."""
        if self.transactions is not None and self.loaded.is_set():
            self.transactions.abort_left()

    def _loaded(self) -> None:
        self.loaded.set()
        self._abort_left()
        self._on_loaded()

    def _fresh_uuid(self) -> UUID:
        return UUID(self._fresh_id())

    def _discovery(self, store: Store) -> Discovery:
        """Nodes and topics, as clients see them."""
        config, share = self._config, self._share
        if share is not None:
            self._topics, nodes = share.topics, share.nodes
        else:
            if store.entries is not None:
                hop = self._loop.call_soon_threadsafe
                self._topics = ClusterTopics(store.entries, hop, self._left_out).topics
            else:
                self._topics = Topics(store.topics, partial(self._write_topics, store))
            nodes = [node_addresses(config, addresses_of(self._sockets))]
        changing = ((), None, None) if share is None else (share.silent_nodes, share.present, share.leading)
        events = 0 if store.folder is None else partitions_of(store.folder, EVENTS_TOPIC)
        return Discovery(
            config,
            store.cluster_id,
            self._topics,
            nodes,
            store.owners,
            events,
            *changing,
            cluster=store.cluster,
            owners_of_ids=None if store.other is None else store.other.owners,
        )

    def _left_out(self, entry: str) -> None:
        """Report an entry of the cluster that can't be read."""
        report(self._lines, "key_unreadable", key=f"/{self._config.cluster}/state/entry/{entry}")

    def _write_topics(self, store: Store, change: Change, done: ChangeDone) -> None:
        def saved(error: EngineError | None) -> None:
            if error is not None:
                report(self._lines, "topics_not_written", reason=str(error))
            done({} if error is None else error)

        store.save_topics(
            changed(self._topics.kept(), change), lambda error: self._loop.call_soon_threadsafe(saved, error)
        )

    async def _open_http(self, listening: socket.socket, services: Services) -> None:
        """Open HTTP."""
        # A server without HTTP doesn't import these.
        from coordinator.client.connection import Address  # noqa: PLC0415
        from coordinator.site.site import Site  # noqa: PLC0415

        metrics = self.metrics(services.measures)
        secure = self._securing(HTTP)
        ask, pace = self.in_process().open, services.pace
        self._site = Site(self._config, self, ask, metrics, self._lines, services.clock, pace, secure)
        await self._site.start(listening)
        scheme = "http" if secure is None else "https"
        where = f"{scheme}://{Address(*listening.getsockname()[:2])}/"
        self._lines.info("http_listening", f"HTTP: {where}", url=where)

    def metrics(self, measures: Measures) -> Callable[[], Awaitable[list[Metric]]]:
        """A function that makes all metrics, with the counts of `measures`."""
        from coordinator.server.scrape import server_metrics  # noqa: PLC0415 - as above

        assert self.transactions is not None
        parts = self.runtime, self.connections, self.events, self.cluster, self.transactions
        return partial(server_metrics, *parts, measures)

    def in_process(self) -> InProcess:
        """Opens clients of this server that need no socket, for other threads of this process."""
        from coordinator.server.in_process import InProcess  # noqa: PLC0415 - as above

        security = client_security(self._config)
        listener = listener_for(self._config, "PLAINTEXT" if security is None else security.protocol)
        node_id = self._config.node_id
        return InProcess(self._api, self._discovered, node_id, listener, self._loop, self._lines, security)

    def _topics_deleted(self, topics: Sequence[Topic], done: Callable[[], None]) -> Iterator[None]:
        assert self.data is not None
        yield from self.data.delete(topics, done)
        yield from self.runtime.remove_topics(frozenset([topic.name for topic in topics]))

    def _report(self, name: str, /, **fields: object) -> None:
        """Pass a report of the engine from the engine's thread to the loop."""
        self._loop.call_soon_threadsafe(self._take_report, name, fields)

    def _take_report(self, name: str, fields: dict[str, object]) -> None:
        # The runtime writes the lines of all other reports: it knows what it does about each.
        of_log = fields.pop("log", OFFSETS_TOPIC)
        log = f"{of_log}-{fields['partition']}" if "partition" in fields else "The log"
        report(self._lines, name, log, **fields)
        if name == "engine_failed":
            self.failed.set()

    # Stop.

    async def stop(self) -> None:
        """Stop: see the module."""
        left = 0
        if self._store is not None and self._store.cluster is not None:
            left = await self._leave(self._store.cluster)
        self._close_sockets()
        if self._site is not None:
            await self._site.stop()
        if self._statsd is not None:
            await self._statsd.stop()
        if self.certificates is not None:
            await self.certificates.stop()
        if self._sasl is not None:
            await self._sasl.stop()
        if self._searches is not None:
            self._searches.close()
        self.connections.stop()
        self._api.forget()
        if self._faults is not None:
            self._faults.detach()
        self._wind_down()
        until = self._loop.time() + STOP_WITHIN_S
        await called(self.runtime.when_idle, until - self._loop.time())
        if self.transactions is not None:
            await called(self.transactions.when_idle, until - self._loop.time())
        if not await called(self._topics.when_idle, until - self._loop.time()):
            self._hangs("topics.json")
        if self.data is not None:
            idle = self.data.idle
            self._topics.on_entry = lambda _: ()
            self.data.stop()
            await called(lambda done: self.events.stop(partial(idle, done)), until - self._loop.time())
        if not await called(self.connections.close, STOP_WITHIN_S):
            self.connections.abort()
        await self._close()
        if left:
            report(self._lines, "hand_over_unfinished", partitions=left)
        elif not self.failed.is_set() and not self.hanging:
            self._lines.info("server_stopped", "Stopped in order: all that was acknowledged is durable")

    def _wind_down(self) -> None:
        """Begin nothing new in either log: a partition that loses its owner would be acquired anew."""
        self.runtime.wind_down()
        if self.transactions is not None:
            self.transactions.wind_down()

    async def _leave(self, cluster: Cluster) -> int:
        """Hand all partitions over to other nodes, and go on serving until then.

        Returns how many are not handed over in time; 0 if there is no other node.
        """
        if len(cluster.nodes()) < 2:
            cluster.leave()
            return 0

        def leave(done: Callable[[], None]) -> None:
            self.runtime.when_left(done)
            cluster.leave()

        if await called(leave, LEAVE_WITHIN_S):
            return 0
        return sum(partition.ownership is not None for partition in self.runtime.partitions)

    def _close_sockets(self) -> None:
        """Take no more connections."""
        for server in self._servers:
            server.close()
        for _, listening in self._sockets:
            listening.close()
        self._servers.clear()
        self._sockets.clear()

    async def _close(self) -> None:
        self._close_sockets()
        if self.data is not None:
            await self._close_log("topics", self.data.close)
        if self.transactions is not None:
            await self._close_log("transactions", self.transactions.close)
        if self._store is not None:
            await self._close_log("groups", self._store.close)

    async def _close_log(self, log: str, close: Callable[[], None]) -> None:
        """Close a log; this waits for its thread, which may wait for the disk. If the disk hangs, log it and go on."""
        closing = self._loop.run_in_executor(None, close)
        await asyncio.wait([closing], timeout=CLOSE_WITHIN_S)
        if closing.done():
            closing.result()
        else:
            self._hangs(log)

    def _hangs(self, log: str) -> None:
        self.hanging.append(log)
        report(self._lines, "disk_hangs", log=log)

    def start_hangs(self) -> None:
        """Log that the process ends before the start is over."""
        report(self._lines, "start_hangs", store=", ".join(self._config.store) or self._config.log_dirs)


async def at_most(event: asyncio.Event, within_s: float) -> bool:
    """Wait for an event, at most for this time; returns whether it came."""
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), within_s)
    return event.is_set()


async def called(begin: Callable[[Callable[[], None]], object], within_s: float) -> bool:
    """Call `begin` with a callback, and wait for it as `at_most`."""
    event = asyncio.Event()
    begin(event.set)
    return await at_most(event, within_s)


def client_security(config: Config) -> Security | None:
    """How HTTP speaks to other nodes, if a file says so. Raises StartFailed."""
    if not config.http_client_config:
        return None
    from coordinator.client.properties import PropertiesError, read_file  # noqa: PLC0415 - as certificates_of
    from coordinator.client.security import Security  # noqa: PLC0415

    try:
        return Security(read_file(Path(config.http_client_config)))
    except PropertiesError as error:
        raise StartFailed(f"tenure.http.client.config: {error}") from error


def listener_for(config: Config, protocol: str) -> str:
    """The name of the first listener with that security protocol; of the first one if there is none."""
    names = [listener.name for listener in served_listeners(config)]
    return next((name for name in names if config.security_protocol(name) == protocol), names[0])


def certificates_of(config: Config, share: WorkerPart | None = None) -> Certificates | None:
    """The certificates of all listeners with TLS; None if there is no such listener. Raises ConfigError."""
    if not tls_listeners(config):
        return None
    # A server without TLS doesn't import this: cryptography takes as long as the rest of a start.
    from coordinator.server.wire.certificates import Certificates  # noqa: PLC0415

    return Certificates(config) if share is None else Certificates(config, share.certificates, share.on_certificates)


def bind_all(config: Config) -> Bound:
    """Take the addresses of all listeners. Raises StartFailed."""
    # Here, since a server of several workers comes along too.
    if has_sasl(config):
        from coordinator.server.sasl import check  # noqa: PLC0415 - a server without it needs none

        check(config)
    client_security(config)
    bound: Bound = []
    for listener in (*served_listeners(config), *config.http):
        try:
            bound.append((listener, bind(listener)))
        except OSError as error:
            for _, listening in bound:
                listening.close()
            setting = "tenure.http" if listener.name == HTTP else "listeners"
            raise StartFailed(f"{setting}: {listener.address}: {reason(error)}") from error
    return bound


def has_sasl(config: Config) -> bool:
    """Whether clients of a listener authenticate by SASL."""
    return any(config.security_protocol(each.name) in SASL_PROTOCOLS for each in served_listeners(config))


def addresses_of(bound: Bound) -> dict[str, tuple[str, int]]:
    """The configured host, and the port, of each listener by its name."""
    return {listener.name: (listener.host, listening.getsockname()[1]) for listener, listening in bound}


def reason(error: BaseException) -> str:
    """A failure in one line."""
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return "the address is in use"
    return explain(error)
