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

The server's time is the test's (`advance`, `freeze`; coordinator.testing.clock), and so is its luck (`faults`).

House rule: a test that ends leaves no thread, no socket and no file.
"""

from __future__ import annotations

import asyncio
import io
import random
from collections import deque
from functools import partial
from pathlib import Path
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any, Self, TypeVar
from uuid import UUID

from coordinator.client.topics import create_topic
from coordinator.config import load
from coordinator.log.memory import MemoryEngine
from coordinator.log.store import in_memory, open_store
from coordinator.server.app import random_id
from coordinator.server.clock import LoopClock
from coordinator.server.faults.faults import Faults
from coordinator.testing.clock import AT_REAL_TIME, KitClock
from coordinator.testing.control import Control
from coordinator.testing.faults import PlannedFaults
from coordinator.testing.group import Group
from coordinator.testing.history import History
from coordinator.testing.loop_thread import LoopThread
from coordinator.testing.requests import Requests

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Mapping
    from types import TracebackType

    from coordinator.client.client import Client
    from coordinator.config import Config
    from coordinator.server.clock import Clock
    from coordinator.testing.members import Members
    from coordinator.testing.values import Look

Result = TypeVar("Result")

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


class NotRunning(Exception):
    """The server is not started, or it was stopped or killed."""


class Tenure:
    """See the module.

    topics: name -> number of partitions; they exist at the start. settings: by Kafka's names; numbers and bools as
    themselves. seed: makes member ids the same in each run of a test. clock: makes the real clock, over which the
    test's time runs, of the server's loop, at each start. timeout: seconds that waiters wait unless they say otherwise.

    Raises ValueError for a setting that has its own argument, ConfigError (a ValueError too) for a wrong setting, and
    StartFailed at `start`, each with the reason in one line.
    """

    def __init__(
        self,
        topics: Mapping[str, int] | None = None,
        settings: Mapping[str, object] | None = None,
        *,
        data_dir: Path | str | None = None,
        seed: int | None = None,
        clock: Callable[[asyncio.AbstractEventLoop], Clock] = LoopClock,
        timeout: float = TIMEOUT_S,
    ) -> None:
        self.timeout = timeout
        self.data_dir = None if data_dir is None else Path(data_dir)
        self.requests = Requests()
        self.history = History()
        self._settings = _settings(topics or {}, settings or {}, self.data_dir)
        self._fresh_id = random_id if seed is None else _seeded_id(seed)
        self._make_real_clock = clock
        self._ahead = AT_REAL_TIME
        self._faults = Faults(on_kill=self._kill_soon)
        self.faults = PlannedFaults(self._faults, self._do_if_running, can_kill=self.data_dir is not None)
        self._config: Config = load(sets=[f"listeners=PLAINTEXT://{HOST}:0", *self._settings])[0]
        self._log = _Tail()
        self._port = 0
        self._changing = Lock()
        self._was_killed = Event()
        self._thread: LoopThread | None = None
        self._control: Control
        self._groups: dict[str, Group] = {}
        self._filled: list[Members] = []

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    # The server.

    def start(self) -> Self:
        """Start the server, at the port that it had before. It accepts requests when this returns."""
        with self._changing:
            assert self._thread is None, "it runs already"
            thread = LoopThread("tenure")
            try:
                thread.run(self._start())
            except BaseException:
                thread.end()
                raise
            self._was_killed.clear()
            self._thread = thread
        return self

    def stop(self) -> None:
        """Stop scripted members, then the server in order: what it was asked to write is written.

        A second stop does nothing.
        """
        self._stop_filled()
        self._end(Control.stop)

    def kill(self) -> None:
        """End the server as if its process were killed: no client gets an answer or a farewell.

        A group is then as of its last answer, or, as after a real kill, as of a request whose answer was lost. Raises
        ValueError without a data folder, because nothing would be left.
        """
        if self.data_dir is None:
            raise ValueError("kill() needs a data folder: Tenure(data_dir=...)")
        self._end(Control.kill)
        self._was_killed.set()

    def wait_until_killed(self, timeout: float | None = None) -> None:
        """Wait until a planned fault has killed the server; `start` brings it back.

        timeout: in seconds, by default that of Tenure. Raises AssertionError after it.
        """
        __tracebackhide__ = True
        within_s = self.timeout if timeout is None else timeout
        if not self._was_killed.wait(within_s):
            raise AssertionError(f"nothing killed the server within {within_s:g} s; planned:\n{self.faults}")

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
        return self._control.server.in_process().open()

    def create_topic(self, name: str, partitions: int = 1) -> None:
        """Create a topic. Raises Refused if there is one with that name, or the name is none."""
        with self.client() as client:
            create_topic(client, name, partitions)

    # Groups.

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
        looked: Look = self._running().call(partial(self._control.look, group_id))
        return looked

    def flush(self) -> None:
        """Bring the history up to now."""
        self.do(Control.flush)

    def do(self, work: Callable[[Control], Result]) -> Result:
        """Call `work` on the server's thread with all that a test may do there, and return its result."""
        return self._running().do(lambda: work(self._control))

    def keep(self, members: Members) -> None:
        """Stop scripted members when the server stops."""
        self._filled.append(members)

    # Time.

    def advance(self, seconds: float, unheard: Collection[tuple[str, str]] = ()) -> None:
        """Let the server's time jump ahead; members whose clients are alive stay (coordinator.testing.clock).

        unheard: members, as (group id, instance id or member id), that the jump may expire although they live. Raises
        LookupError if there is no such member.
        """
        self._running().run(self._control.sessions.advance(round(seconds * 1000), unheard))

    def freeze(self) -> None:
        """Let the server's time stand still, but for `advance`, until `thaw`."""
        self.do(lambda control: control.clock.freeze())

    def thaw(self) -> None:
        """Let the server's time go on from where it stands."""
        self.do(lambda control: control.clock.thaw())

    def end_test(self) -> None:
        """Take back what a test planned: faults, a frozen time, silenced and scripted members. All else stays."""
        self._stop_filled()
        self.faults.clear()
        if self.is_running:
            self.thaw()
            self.do(lambda control: control.sessions.hear_all())

    # Threads.

    def _running(self) -> LoopThread:
        if self._thread is None:
            raise NotRunning("the server doesn't run: start() it")
        return self._thread

    def _do_if_running(self, work: Callable[[], None]) -> None:
        """Call `work` on the server's thread, or here if there is none."""
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
                self._ahead = self._control.clock.ahead
                try:
                    thread.run(end(self._control))
                finally:
                    thread.end()

    # On the server's thread.

    def _kill_soon(self) -> None:
        """A planned fault kills the server."""
        Thread(target=self.kill, name="tenure kill").start()

    async def _start(self) -> None:
        loop = asyncio.get_running_loop()
        clock = KitClock(loop, self._make_real_clock(loop), self._ahead)
        self._config = config = load(sets=[f"listeners=PLAINTEXT://{HOST}:{self._port}", *self._settings])[0]
        self._control = Control(
            config,
            clock,
            self._faults,
            self.history,
            self.requests,
            opened=open_store if self.data_dir is not None else partial(in_memory, _engine(config)),
            log=self._log,
            fresh_id=self._fresh_id,
        )
        await self._control.start()
        self._port = self._control.server.address[1]


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


def _seeded_id(seed: int) -> Callable[[], str]:
    """Makes the same texts of UUIDs for the same seed."""
    chance = random.Random(seed)  # noqa: S311 - a test's chance is no secret
    return lambda: str(UUID(int=chance.getrandbits(128), version=4))
