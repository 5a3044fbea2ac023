"""A coordinator in this process: start, stop, kill, topics; groups to look at.

    tenure = Tenure(topics={"orders": 12}, settings={"group.max.size": 5})
    tenure.start()
    ...  # clients connect to tenure.bootstrap_servers
    tenure.stop()

Each has a server of its own, with a loop on a thread of its own and a free port of 127.0.0.1. It keeps:

    without data_dir    groups and offsets in memory; records of topics in a temporary folder, which the first Produce
                        or Fetch makes and `stop` removes
    with data_dir       everything in that folder, as `tenure serve` does; so `kill` and `start` lose nothing that was
                        acknowledged, and clients find the server at the same port again

Several nodes (coordinator.testing.nodes) are one cluster in this process, without a data folder.

Settings have Kafka's names and defaults, but for DEFAULTS; the environment changes none. `reset` makes it as new.

The test controls the server's time (`advance`, `freeze`; coordinator.testing.clock) and its faults (`faults`).

House rule: a test that ends leaves no thread, no socket and no file.
"""

from __future__ import annotations

import asyncio
import io
import os
import random
import time
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any, Self, TextIO, TypeVar
from uuid import UUID

from coordinator.client.client import Client
from coordinator.client.topics import create_topic, user_topics
from coordinator.client.transactions import Transaction, list_transactions
from coordinator.config import Config, configs_of_workers, load, served_listeners
from coordinator.group.client import Client as GroupClient
from coordinator.log.memory import MemoryEngine
from coordinator.log.meta import empty_folder
from coordinator.log.store import OpenStore, in_memory, lock_folder, open_store
from coordinator.loop.clock import Clock, LoopClock
from coordinator.loop.lines import Lines
from coordinator.server.app import WorkerPart, random_id
from coordinator.server.faults.faults import Faults
from coordinator.server.faults.plan import Fault
from coordinator.server.nodes.events_topic import Events
from coordinator.testing.clock import AT_REAL_TIME, KitClock, take_turns
from coordinator.testing.control import Control
from coordinator.testing.faults import PlannedFaults
from coordinator.testing.forks import FORKED, Held, hold
from coordinator.testing.group import PAUSE_S, Group
from coordinator.testing.history import History
from coordinator.testing.loop_thread import LoopThread
from coordinator.testing.members import Members
from coordinator.testing.requests import Requests
from coordinator.testing.transactions import Record, are_ending, assert_exactly_once, committed_records
from coordinator.testing.values import Look, NodeState

if TYPE_CHECKING:
    from coordinator.testing.nodes import Nodes

Result = TypeVar("Result")

HOST = "127.0.0.1"

DEFAULTS = {
    "group.initial.rebalance.delay.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.assignment.interval.ms": "0",
}
"""Settings that differ from Kafka's. Kafka holds the first rebalance of a group open for 3 s, and each test would wait
as long. 100 ms are enough for consumers that a test starts together in its own process. Without any delay the second
consumer waits until the first one hears of it, with its next heartbeat: 3 s by most clients' defaults. In the consumer
protocol the server sets that interval, 5 s by Kafka's default, and makes at most one target a second."""

IN_MEMORY = {"tenure.events.enable": "false", "offsets.topic.num.partitions": "5"}
"""Further settings without a data folder. Events would need a folder for their topic; `Group.timeline` has them all the
same. Fewer partitions start sooner."""

TAKEN = {"listeners": "bootstrap_servers", "log.dirs": "data_dir", "tenure.topics": "topics"}
"""Settings that Tenure makes itself, each with its own name for it."""

TIMEOUT_S = 30.0
"""How long waiters wait by default. A client needs about a second to join; a busy machine may need many."""

LOG_LINES = 1_000
"""Log lines that are kept, the newest."""

NO_NODE = "no node runs: start_node() one"


class NotRunning(Exception):
    """The server is not started, or it was stopped or killed; or it runs in the parent of this forked process."""


class Tenure:
    """See the module.

    topics: name -> number of partitions; they exist at the start. settings: by Kafka's names; numbers and bools as
    themselves. nodes: how many servers share the groups; their ids count from 0. seed: makes member ids the same in
    each run of a test. clock: makes the real clock, over which the test's time runs, of the server's loop, at each
    start. timeout: seconds that waiters wait unless they say otherwise. config: a whole configuration of one node, in
    place of topics and settings; its log.dirs count only as data_dir. log: gets the log lines too.

    Raises ValueError for a setting that has its own argument, or several nodes with a data folder; ConfigError (a
    ValueError too) for a wrong setting; StartFailed at `start`. Each gives the reason in one line.
    """

    def __init__(
        self,
        topics: Mapping[str, int] | None = None,
        settings: Mapping[str, object] | None = None,
        *,
        data_dir: Path | str | None = None,
        nodes: int = 1,
        seed: int | None = None,
        clock: Callable[[asyncio.AbstractEventLoop], Clock] = LoopClock,
        timeout: float = TIMEOUT_S,
        config: Config | None = None,
        log: TextIO | None = None,
    ) -> None:
        self.timeout = timeout
        self.data_dir = None if data_dir is None else Path(data_dir)
        self.requests = Requests()
        self.history = History()
        sets = _settings(topics or {}, settings or {}, self.data_dir, nodes)
        config = config or load(sets=sets)[0]
        self._configs = [config] if nodes == 1 else configs_of_workers(replace(config, workers=nodes))
        self._seed = seed
        self._fresh_id = _fresh_id(seed)
        self._make_real_clock = clock
        self._ahead = AT_REAL_TIME
        self._faults = [Faults(on_kill=partial(self._kill_soon, index)) for index in range(nodes)]
        can_kill = self.data_dir is not None or nodes > 1
        self.faults = PlannedFaults(self._faults, self._do_if_running, can_kill=can_kill)
        self._log = _Tail(log)
        self._bootstrap = ""
        self._changing = Lock()
        self._is_over = Event()
        self._was_killed = False
        self._thread: LoopThread | None = None
        self._is_in_parent = False
        self._clock: KitClock
        self._control: Control | None = None
        self._nodes: Nodes | None = None
        self._events: Events | None = None
        self._groups: dict[str, Group] = {}
        self._filled: list[Members] = []
        hold(self)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # The server.

    def start(self) -> Self:
        """Start the server, at the port that it had before. It accepts requests when this returns."""
        self._require_own()
        with self._changing:
            assert self._thread is None, "it runs already"
            thread = LoopThread("tenure")
            try:
                thread.run(self._start())
            except BaseException:
                thread.end()
                raise
            self._was_killed = False
            self._is_over.clear()
            self._thread = thread
        return self

    def stop(self) -> None:
        """Stop scripted members, then the server in order: what it was asked to write is written.

        A second stop does nothing.
        """
        self._stop_filled()
        self._end(Control.stop)
        self._is_over.set()

    def kill(self) -> None:
        """End the server as if its process were killed: no client gets an answer or a farewell.

        A group is then as of its last answer, or, as after a real kill, as of a request whose answer was lost. Raises
        ValueError without a data folder, because nothing would be left.
        """
        self._require_own()
        if self._nodes is not None:
            raise ValueError("there are several nodes, all in memory: kill_node() ends one of them")
        if self.data_dir is None:
            raise ValueError("a kill needs a data folder: Tenure(data_dir=...), or log.dirs")
        self._end(Control.kill)
        self._was_killed = True
        self._is_over.set()

    def wait_until_killed(self, timeout: float | None = None, *, guard: Callable[[], None] | None = None) -> None:
        """Wait until a planned fault has killed the server, or a node; `start` or `start_node` brings it back.

        timeout: in seconds, by default that of Tenure. guard: as of `Group.wait_until`. Raises AssertionError after the
        timeout, or if the server is stopped.
        """
        __tracebackhide__ = True
        self._wait(lambda: self._is_over.wait(PAUSE_S), "nothing killed the server", timeout, guard)
        if not self._was_killed:
            raise AssertionError("the server was stopped, and nothing had killed it")

    def wait_until_fired(
        self, fault: Fault, times: int = 1, timeout: float | None = None, *, guard: Callable[[], None] | None = None
    ) -> None:
        """Wait until so many requests got a planned fault. The rest is as in `wait_until_killed`."""
        __tracebackhide__ = True

        def has_fired() -> bool:
            time.sleep(PAUSE_S)
            return fault.fired >= times

        self._wait(has_fired, f"not {times} requests got the fault {fault}", timeout, guard)

    def _wait(
        self, is_so: Callable[[], bool], failure: str, timeout: float | None, guard: Callable[[], None] | None
    ) -> None:
        """Call `is_so`, which takes a moment, until it is true. failure: the first words of the error."""
        __tracebackhide__ = True
        self._require_own()
        within_s = self.timeout if timeout is None else timeout
        until = time.monotonic() + within_s
        while not is_so():
            if time.monotonic() >= until:
                raise AssertionError(f"{failure} within {within_s:g} s; planned:\n{self.faults}")
            if guard is not None:
                guard()

    @property
    def is_running(self) -> bool:
        """Whether the server runs."""
        return self._thread is not None

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT, for clients; the same over a kill and a new start.

        It is that of the first listener. Several nodes have one each, with commas between them.
        """
        if not self._bootstrap:
            raise NotRunning("it was never started, so it has no port")
        return self._bootstrap

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of each listener of each node that runs, in the order of their ids."""
        self._running()
        return [address for control in self._controls for address in control.server.addresses]

    @property
    def log(self) -> str:
        """The newest log lines, in the words of a Kafka broker."""
        return self._log.text

    def client(self) -> Client:
        """A client of the server without a socket (coordinator.client); `requests` doesn't count what it sends."""
        self._running()
        controls = self._controls
        if not controls:
            raise NotRunning(NO_NODE)
        return controls[0].server.in_process().open()

    def create_topic(self, name: str, partitions: int = 1) -> None:
        """Create a topic. Raises Refused if there is one with that name, or the name is none."""
        with self.client() as client:
            create_topic(client, name, partitions)

    @property
    def topics(self) -> dict[str, int]:
        """The topics with their numbers of partitions, without internal ones."""
        with self.client() as client:
            return user_topics(client)

    # Transactions.

    @property
    def transactions(self) -> dict[str, Transaction]:
        """The transactional ids, each with its newest transaction."""
        with self.client() as client:
            return {each.transactional_id: each for each in list_transactions(client)}

    def records(self, topic: str) -> list[Record]:
        """The records of a topic that a consumer with read_committed gets, partition by partition.

        Transactions whose end is decided are waited for. Raises Refused.
        """
        __tracebackhide__ = True
        with self.client() as client:

            def are_at_rest() -> bool:
                time.sleep(PAUSE_S)
                return not are_ending(list_transactions(client))

            self._wait(are_at_rest, "a transaction didn't end", None, None)
            return committed_records(client, topic)

    def assert_exactly_once(self, topic: str, values: Iterable[bytes]) -> None:
        """Each value is in one committed record of a topic, and no other value is. Raises Refused."""
        __tracebackhide__ = True
        assert_exactly_once(topic, self.records(topic), values)

    # Groups.

    def group(self, group_id: str) -> Group:
        """The group with this id, whether it exists yet or not; the same object each time."""
        return self._groups.setdefault(group_id, Group(self, group_id))

    @property
    def groups(self) -> list[Group]:
        """The groups that something happened to, and those that were asked for."""
        self.catch_up()
        return [self.group(group_id) for group_id in dict.fromkeys([*self.history.group_ids(), *self._groups])]

    def look(self, group_id: str) -> Look:
        """A group at one moment, once all that it answered is durable. The history is complete up to then."""

        def look(future: Future[Look]) -> None:
            self._control_of(group_id).look(group_id, future)

        return self._running().call(look)

    def flush(self) -> None:
        """Bring the history up to now."""
        self._do_on_each(Control.flush)

    def catch_up(self) -> None:
        """Bring the history up to now, if the server runs; after a stop it is complete."""
        self._require_own()
        if self.is_running:
            self.flush()

    def do(self, work: Callable[[Control], Result], group_id: str = "") -> Result:
        """Call `work` on the server's thread with all that a test may do there, and return its result.

        group_id: with several nodes, `work` gets the node that coordinates this group.
        """
        return self._running().do(lambda: work(self._control_of(group_id)))

    def keep(self, members: Members) -> None:
        """Stop scripted members when the server stops."""
        self._require_own()
        self._filled = [*(each for each in self._filled if not each.are_stopped), members]

    # Several nodes.

    @property
    def nodes(self) -> list[NodeState]:
        """All nodes, in the order of their ids. A single server is one too."""
        if self._nodes is not None:
            return self._nodes.states
        return [NodeState(self._configs[0].node_id, self.bootstrap_servers, self.is_running)]

    def coordinator_of(self, group_id: str) -> int:
        """The id of the node that coordinates a group, whether the group exists yet or not."""
        return self._cluster.owner(group_id)

    def move(self, group_id: str, to: int) -> None:
        """Make another node the coordinator of a group, and of all groups in the same partition.

        The former one answers requests that wait there with NOT_COORDINATOR. The new one serves when this returns; it
        has what was acknowledged. Raises ValueError if there is no such node, or it doesn't run.
        """
        self._running().run(self._cluster.move(group_id, to))

    def kill_node(self, node: int) -> None:
        """End a node as `kill` ends a server. The others have its groups and topic partitions when this returns.

        Raises ValueError if there is no such node, or it doesn't run.
        """
        self._running().run(self._cluster.end_node(node, Control.kill))

    def start_node(self, node: int) -> None:
        """Start a node that was killed, at the port that it had. It gets groups by a move, or when another node dies.

        Raises ValueError if there is no such node, or it runs.
        """
        self._running().run(self._cluster.start_node(node))
        self._was_killed = False
        self._is_over.clear()

    @property
    def _cluster(self) -> Nodes:
        self._running()
        if self._nodes is None:
            raise ValueError("there is one node: Tenure(nodes=3), or tenure.control.nodes=3, has several")
        return self._nodes

    # Time.

    def advance(self, seconds: float, unheard: Collection[tuple[str, str]] = ()) -> None:
        """Let the server's time jump ahead; members whose clients are alive stay (coordinator.testing.clock).

        unheard: members, as (group id, instance id or member id), that the jump may expire although they live. Raises
        LookupError if there is no such member.
        """
        self._running().run(self._advance(round(seconds * 1000), unheard))

    def freeze(self) -> None:
        """Let the server's time stand still, but for `advance`, until `thaw`."""
        self._running().do(self._clock.freeze)

    def thaw(self) -> None:
        """Let the server's time go on from where it stands."""
        self._running().do(self._clock.thaw)

    def end_test(self) -> None:
        """Take back what a test planned: faults, a frozen time, silenced and scripted members. All else stays."""
        self._stop_filled()
        if self._is_in_parent:
            return  # a forked process that goes through pytest's end took nothing along
        self.faults.clear()
        if self.is_running:
            self.thaw()
            self._do_on_each(lambda control: control.sessions.hear_all())

    def reset(self) -> None:
        """Make everything as new, at the same port: groups, topics, faults, time, history, counts. Clients are cut off.

        With a data folder, a server with control must have made it (tenure.control): otherwise this raises ConfigError,
        and the server stays stopped. Raises StartFailed too.
        """
        self._require_own()
        self.stop()
        if self.data_dir is not None:
            unlock = lock_folder(self._configs[0])
            try:
                empty_folder(self.data_dir)
            finally:
                unlock()
        self.faults.clear()
        self.history = History()
        self.requests.clear()
        self._groups.clear()
        self._ahead = AT_REAL_TIME
        self._fresh_id = _fresh_id(self._seed)
        self.start()

    # Threads.

    def _running(self) -> LoopThread:
        self._require_own()
        if self._thread is None:
            raise NotRunning("the server doesn't run: start() it")
        return self._thread

    def _require_own(self) -> None:
        """Raise NotRunning in a process that was forked while the server ran."""
        if self._is_in_parent:
            raise NotRunning(FORKED)

    def let_go(self) -> Held:
        """See forks.Holder: in a process that a test forks, the server doesn't run."""
        if self._thread is None:
            return Held()
        self._thread = None
        self._is_in_parent = True
        self._changing = Lock()
        servers = [control.server for control in self._controls]
        folders = [server.data.folder for server in servers if server.data is not None]
        return Held(
            ports=frozenset(port for server in servers for port in server.ports),
            folders=frozenset(os.path.realpath(folder) for folder in folders if folder is not None),
        )

    def _do_if_running(self, work: Callable[[], None]) -> None:
        """Call `work` on the server's thread, or here if there is none."""
        self._require_own()
        with self._changing:
            if self._thread is None:
                work()
            else:
                self._thread.do(work)

    def _stop_filled(self) -> None:
        while self._filled:
            self._filled.pop().stop()

    def _end(self, end: Callable[[Control], Coroutine[Any, Any, None]]) -> None:
        with self._changing:
            thread, self._thread = self._thread, None
            if thread is not None:
                self._ahead = self._clock.ahead
                try:
                    thread.run(self._ended(end))
                finally:
                    thread.end()

    def _do_on_each(self, work: Callable[[Control], object]) -> None:
        """Call `work` on the server's thread for each node that runs."""

        def do() -> None:
            for control in self._controls:
                work(control)

        self._running().do(do)

    def _kill_soon(self, index: int) -> None:
        """A planned fault kills the server, or the node with that index."""

        def kill() -> None:
            if self._nodes is None:
                self.kill()
            else:
                with suppress(NotRunning, ValueError):  # the test was first
                    self.kill_node(self._nodes.ids[index])
                self._was_killed = True
                self._is_over.set()

        Thread(target=kill, name="tenure kill").start()

    # On the server's thread.

    async def _start(self) -> None:
        loop = asyncio.get_running_loop()
        self._clock = KitClock(loop, self._make_real_clock(loop), self._ahead)
        if len(self._configs) > 1:
            await self._start_nodes()
            return
        (config,) = self._configs
        engine = MemoryEngine(config.offsets_topic_num_partitions, config.node_id)
        opened = open_store if self.data_dir is not None else partial(in_memory, engine)
        self._control = self._make_control(self._faults[0], config, opened)
        await self._control.start()
        server = self._control.server
        self._configs = [_at_ports(config, server.addresses)]
        self._bootstrap = str(server.in_process().address)

    async def _start_nodes(self) -> None:
        from coordinator.testing.nodes import Nodes  # noqa: PLC0415 - a single server doesn't need it

        lines = Lines(self._log, self._configs[0].log_format, None, self._clock)
        self._events = Events(self._clock.real, lines)
        self._nodes = Nodes(self._configs, list(map(partial(partial, self._make_control), self._faults)), lines)
        await self._nodes.start()
        self._configs = self._nodes.configs
        self._bootstrap = ",".join(node.address for node in self._nodes.states)
        self.history.owner = self._nodes.owner
        self._events.start(self.history.write, self._has_client)

    def _make_control(
        self, faults: Faults, config: Config, opened: OpenStore, share: WorkerPart | None = None
    ) -> Control:
        """The next run of the server, or of a node."""
        return Control(
            config,
            self._clock,
            faults,
            self.history,
            self.requests,
            opened=opened,
            log=self._log,
            fresh_id=self._fresh_id,
            share=share,
            events=self._events,
        )

    async def _ended(self, end: Callable[[Control], Coroutine[Any, Any, None]]) -> None:
        if self._nodes is not None and self._events is not None:
            await self._nodes.end(end)
            self._events.stop(lambda: None)
        elif self._control is not None:
            await end(self._control)

    @property
    def _controls(self) -> Sequence[Control]:
        """The controls of the running nodes."""
        if self._nodes is not None:
            return self._nodes.controls
        return [] if self._control is None else [self._control]

    def _control_of(self, group_id: str) -> Control:
        """The control of a group's coordinator."""
        controls = self._controls
        if not controls:
            raise NotRunning(NO_NODE)
        return controls[0] if self._nodes is None else self._nodes.control(self._nodes.owner(group_id))

    def _has_client(self, client: GroupClient) -> bool:
        return any(control.server.connections.has(client) for control in self._controls)

    async def _advance(self, ms: int, unheard: Collection[tuple[str, str]]) -> None:
        await take_turns()
        with ExitStack() as stack:
            for control in self._controls:
                its = [(group_id, name) for group_id, name in unheard if self._control_of(group_id) is control]
                stack.enter_context(control.sessions.without(its))
            self._clock.advance(ms)


class _Tail(io.StringIO):
    """A stream that keeps the newest lines. further: gets all of them."""

    def __init__(self, further: TextIO | None) -> None:
        super().__init__()
        self._further = further
        self._lines: deque[str] = deque(maxlen=LOG_LINES)

    def write(self, text: str) -> int:
        if self._further is not None:
            self._further.write(text)
        self._lines.extend(text.splitlines(keepends=True))
        return len(text)

    def flush(self) -> None:
        if self._further is not None:
            self._further.flush()

    @property
    def text(self) -> str:
        return "".join(self._lines.copy())


def _at_ports(config: Config, addresses: Iterable[tuple[str, int]]) -> Config:
    """The configuration with the ports that its listeners got."""
    ports = {listener.name: port for listener, (_, port) in zip(served_listeners(config), addresses, strict=True)}
    listeners = tuple(each._replace(port=ports.get(each.name, each.port)) for each in config.listeners)
    return replace(config, listeners=listeners)


def _settings(
    topics: Mapping[str, int], settings: Mapping[str, object], data_dir: Path | None, nodes: int
) -> list[str]:
    """Settings as NAME=VALUE, those of the test last, which win."""
    if nodes < 1:
        raise ValueError(f"nodes={nodes}: there is at least one")
    if nodes > 1 and data_dir is not None:
        raise ValueError("several nodes keep everything in memory: nodes= and data_dir= don't go together")
    if nodes > 1 and str(settings.get("tenure.events.enable", False)).lower() == "true":
        raise ValueError("tenure.events.enable needs nodes=1")
    for name, instead in TAKEN.items():
        if name in settings:
            raise ValueError(f"{name} is no setting of a test kit's server; it has {instead}")
    made = {**DEFAULTS, "listeners": f"PLAINTEXT://{HOST}:0"}
    made |= IN_MEMORY if data_dir is None else {"log.dirs": str(data_dir)}
    if topics:
        made |= {"tenure.topics": ",".join(f"{topic}:{count}" for topic, count in topics.items())}
    return [f"{name}={_text(value)}" for name, value in {**made, **settings}.items()]


def _text(value: object) -> str:
    """The value of a setting as a properties file has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _fresh_id(seed: int | None) -> Callable[[], str]:
    """Makes texts of UUIDs: the same for the same seed, by chance without one."""
    if seed is None:
        return random_id
    chance = random.Random(seed)  # noqa: S311 - a test's chance is no secret
    return lambda: str(UUID(int=chance.getrandbits(128), version=4))
