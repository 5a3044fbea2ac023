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

Settings have Kafka's names and defaults, but for DEFAULTS; the environment changes none.

House rule: a test that ends leaves no thread, no socket and no file.
"""

from __future__ import annotations

import asyncio
import io
from collections import deque
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from coordinator.client.topics import create_topic
from coordinator.config import load
from coordinator.group.events import DescribeGroup
from coordinator.log.memory import MemoryEngine
from coordinator.log.store import in_memory, open_store
from coordinator.server.app import Server
from coordinator.server.clock import LoopClock
from coordinator.server.runtime.replies import Reply
from coordinator.server.telemetry.event_queue import Events
from coordinator.server.telemetry.lines import Lines
from coordinator.testing.group import Group
from coordinator.testing.history import History
from coordinator.testing.loop_thread import LoopThread
from coordinator.testing.requests import Requests
from coordinator.testing.values import Look

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Future
    from types import TracebackType

    from coordinator.client.client import Client
    from coordinator.config import Config
    from coordinator.server.clock import Clock
    from protocol.messages import DescribeGroupsResponse

HOST = "127.0.0.1"

DEFAULTS = {"group.initial.rebalance.delay.ms": "100"}
"""Settings that differ from Kafka's. Kafka holds the first rebalance of a group open for 3 s, and each test would wait
as long. 100 ms are enough for consumers that a test starts together in its own process. Without any delay the second
consumer waits until the first one hears of it, with its next heartbeat: 3 s by most clients' defaults."""

IN_MEMORY = {"tenure.events.enable": "false", "offsets.topic.num.partitions": "5"}
"""Further settings without a data folder. Events would need a folder for their topic; `Group.timeline` has them all the
same. Fewer partitions start sooner."""

TAKEN = {"listeners": "bootstrap_servers", "log.dirs": "data_dir", "tenure.topics": "topics"}
"""Settings that Tenure makes itself, each with its own name for it."""

TIMEOUT_S = 30.0
"""How long waiters wait by default. A client needs about a second to join; a busy machine may need many."""

LOG_LINES = 1_000
"""Log lines that are kept, the newest."""

VERSION = 6
"""The version of DescribeGroups that tells a group without members from no group."""


class NotRunning(Exception):
    """The server is not started, or it was stopped or killed."""


class Tenure:
    """See the module.

    topics: name -> number of partitions; they exist at the start. settings: by Kafka's names; numbers and bools as
    themselves. clock: makes the server's clock of its loop, at each start. timeout: seconds that waiters wait unless
    they say otherwise.

    Raises ValueError for a setting that has its own argument, ConfigError (a ValueError too) for a wrong setting, and
    StartFailed at `start`, each with the reason in one line.
    """

    def __init__(
        self,
        topics: Mapping[str, int] | None = None,
        settings: Mapping[str, object] | None = None,
        *,
        data_dir: Path | str | None = None,
        clock: Callable[[asyncio.AbstractEventLoop], Clock] = LoopClock,
        timeout: float = TIMEOUT_S,
    ) -> None:
        self.timeout = timeout
        self.data_dir = None if data_dir is None else Path(data_dir)
        self.requests = Requests()
        self.history = History()
        self._settings = _settings(topics or {}, settings or {}, self.data_dir)
        self._make_clock = clock
        self._config: Config = load(sets=[f"listeners=PLAINTEXT://{HOST}:0", *self._settings])[0]
        self._log = _Tail()
        self._port = 0
        self._thread: LoopThread | None = None
        self._server: Server
        self._events: Events
        self._groups: dict[str, Group] = {}

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> Self:
        """Start the server, at the port that it had before. It accepts requests when this returns."""
        assert self._thread is None, "it runs already"
        thread = LoopThread("tenure")
        try:
            thread.run(self._start())
        except BaseException:
            thread.end()
            raise
        self._thread = thread
        return self

    def stop(self) -> None:
        """Stop the server in order: what it was asked to write is written. A second stop does nothing."""
        self._end(Server.stop)

    def kill(self) -> None:
        """End the server as if its process were killed: no client gets an answer or a farewell.

        A group is then as of its last answer, or, as after a real kill, as of a request whose answer was lost. Raises
        ValueError without a data folder, because nothing would be left.
        """
        if self.data_dir is None:
            raise ValueError("kill() needs a data folder: Tenure(data_dir=...)")
        self._end(_kill)

    @property
    def is_running(self) -> bool:
        """Whether the server runs."""
        return self._thread is not None

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT, for clients; the same over a kill and a new start."""
        if not self._port:
            raise NotRunning("it was never started, so it has no port")
        return f"{HOST}:{self._port}"

    @property
    def log(self) -> str:
        """The newest log lines, in the words of a Kafka broker."""
        return self._log.text

    def client(self) -> Client:
        """A client of the server without a socket (coordinator.client); `requests` doesn't count what it sends."""
        self._running()
        return self._server.in_process().open()

    def create_topic(self, name: str, partitions: int = 1) -> None:
        """Create a topic. Raises Refused if there is one with that name, or the name is none."""
        with self.client() as client:
            create_topic(client, name, partitions)

    def group(self, group_id: str) -> Group:
        """The group with this id, whether it exists yet or not; the same object each time."""
        return self._groups.setdefault(group_id, Group(self, group_id))

    @property
    def groups(self) -> list[Group]:
        """The groups that something happened to, and those that were asked for."""
        if self.is_running:
            self.flush()
        return [self.group(group_id) for group_id in dict.fromkeys([*self.history.group_ids(), *self._groups])]

    def look(self, group_id: str) -> Look:
        """A group at one moment, once all that it answered is durable. The history is complete up to then."""
        looked: Look = self._running().call(partial(self._look, group_id))
        return looked

    def flush(self) -> None:
        """Bring the history up to now."""
        self._running().call(self._flush)

    def _running(self) -> LoopThread:
        if self._thread is None:
            raise NotRunning("the server doesn't run: start() it")
        return self._thread

    def _end(self, end: Callable[[Server], Any]) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            try:
                thread.run(self._ended(end))
            finally:
                thread.end()

    # On the server's thread.

    async def _start(self) -> None:
        clock = self._make_clock(asyncio.get_running_loop())
        self._config = config = load(sets=[f"listeners=PLAINTEXT://{HOST}:{self._port}", *self._settings])[0]
        self._events = Events(clock, Lines(self._log, config.log_format, config.node_id, clock))
        self._server = Server(
            config,
            clock=clock,
            opened=open_store if self.data_dir is not None else partial(in_memory, _engine(config)),
            log=self._log,
            on_notes=self._events.take,
            around=self.requests.around,
        )
        await self._server.start()
        self._events.start(self.history.write, self._server.connections.has)
        self._port = self._server.address[1]
        await self._server.loaded.wait()

    async def _ended(self, end: Callable[[Server], Any]) -> None:
        await end(self._server)
        self._events.stop(lambda: None)

    def _look(self, group_id: str, future: Future[Look]) -> None:
        partition = self._server.runtime.partition_of(group_id)
        group = partition.coordinator.groups.get(group_id)
        generation = 0 if group is None else group.generation
        offsets = {} if group is None else group.offsets
        committed = {(topic, index): held.offset for topic, by in offsets.items() for index, held in by.items()}

        def deliver(described: DescribeGroupsResponse.DescribedGroup) -> None:
            self._events.flush()
            future.set_result(Look(described, generation, committed, len(self.history)))

        partition.submit(group_id, DescribeGroup(_Answer(deliver), VERSION, group_id, waiting=True))

    def _flush(self, future: Future[None]) -> None:
        self._events.flush()
        future.set_result(None)


class _Answer(Reply):
    """Passes the answer on."""

    def __init__(self, deliver: Callable[[Any], None]) -> None:
        self._deliver = deliver

    def deliver(self, body: Any) -> None:
        """See Reply."""
        self._deliver(body)


class _Tail(io.StringIO):
    """A stream that keeps the newest lines."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: deque[str] = deque(maxlen=LOG_LINES)

    def write(self, text: str) -> int:
        self._lines.extend(text.splitlines(keepends=True))
        return len(text)

    @property
    def text(self) -> str:
        return "".join(self._lines.copy())


async def _kill(server: Server) -> None:
    server.connections.stop()
    server.connections.abort()
    await server.stop()


def _engine(config: Config) -> MemoryEngine:
    return MemoryEngine(config.offsets_topic_num_partitions, config.node_id)


def _settings(topics: Mapping[str, int], settings: Mapping[str, object], data_dir: Path | None) -> list[str]:
    """Settings as NAME=VALUE, those of the test last, which win."""
    for name, instead in TAKEN.items():
        if name in settings:
            raise ValueError(f"{name} is no setting of a test kit's server; it has {instead}")
    made = DEFAULTS | (IN_MEMORY if data_dir is None else {"log.dirs": str(data_dir)})
    if topics:
        made |= {"tenure.topics": ",".join(f"{topic}:{count}" for topic, count in topics.items())}
    return [f"{name}={_text(value)}" for name, value in {**made, **settings}.items()]


def _text(value: object) -> str:
    """The value of a setting as a properties file has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
