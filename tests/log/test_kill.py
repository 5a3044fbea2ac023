"""Kills processes over and over, at moments of chance, and tests that they keep everything acknowledged.

First the tests kill whole servers under clients that send all kinds of requests, with compactions under way. Then they
kill an engine alone, which takes more records in the same time.
"""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from coordinator.log.embedded.engine import EmbeddedEngine
from coordinator.log.embedded.journal import JOURNAL_SIZE_MIN
from coordinator.log.segments.journal import WINDOWS_AT, journal_path
from tests.log.appender import WINDOW
from tests.log.calls import Events, numbers_of, opened
from tests.log.promises import GROUPS, TOPICS, Player
from tests.support.length import rounds
from tests.support.patience import WITHIN_S
from tests.support.raw import Closed, Connection
from tests.support.tenure import ServerFailed, Tenure

pytestmark = pytest.mark.rounds

ROOT = Path(__file__).parents[2]
ROUNDS = rounds(4, 10, 200)
SPREAD_ROUNDS = rounds(1, 3, 100)
SEQUENCE = struct.Struct(">Q")
SEQUENCE_AT = WINDOWS_AT + 12
"""Where a file of the journal has the number of its first window."""

EXPECTED = {"tail_cut", "journal_recovered", "journal_cut", "load_progress"}
"""Events of a start behind a kill; a load that a busy machine makes slow tells its progress."""

SETTINGS: dict[str, str | int] = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 3,
    "offsets.topic.segment.bytes": 30_000,
    "log.cleaner.backoff.ms": 10,
    "log.cleaner.min.cleanable.ratio": "0.2",
    "log.cleaner.delete.retention.ms": 0,
    "transaction.state.log.num.partitions": 3,
    "tenure.topics": TOPICS,
}


class Load:
    """Players under whom the test kills a server, and the number of answers that they got.

    groups: of each player.
    """

    def __init__(self, chance: Random, players: int = 6, groups: int = GROUPS) -> None:
        self._chance = chance
        self._answers = 0
        self._answered = threading.Condition()
        self.players = [Player(f"p{number}", Random(chance.random()), self._count, groups) for number in range(players)]

    def _count(self) -> None:
        with self._answered:
            self._answers += 1
            self._answered.notify()

    def run(self, server: Tenure, answers: int, *, compacts: bool) -> None:
        """Let the players get so many more answers, and play a moment longer; then kill the server.

        compacts: wait for a finished compaction as well; otherwise kill one on the way if there is one.
        """
        end = self._answers + answers
        end_s = time.monotonic() + WITHIN_S
        mark = server.mark()
        with ThreadPoolExecutor(len(self.players)) as threads:
            playing = [threads.submit(player.play, server.port) for player in self.players]
            try:
                while not any(each.done() for each in playing) and time.monotonic() < end_s:
                    if self._answers >= end and not (compacts and not server.count("compacted", since=mark)):
                        break
                    with self._answered:
                        self._answered.wait(0.01)
                    if not compacts and self._chance.random() < 0.02:
                        kill_compaction(server.pid)
                threading.Event().wait(self._chance.random() * 0.005)
            finally:
                server.kill()
            for each in playing:
                with suppress(Closed, OSError):
                    each.result()

    def check(self, server: Tenure) -> None:
        """Check that the server keeps its promises to all players."""
        with Connection(server.port) as connection:
            for player in self.players:
                player.check(connection)


def kill_compaction(server: int) -> None:
    """Kill the process that compacts for the server, if there is one and the system lists processes (Linux)."""
    for path in Path(f"/proc/{server}/task").glob("*/children"):
        with suppress(OSError):
            for child in path.read_text().split():
                os.kill(int(child), signal.SIGKILL)


@pytest.fixture(params=[False, True], ids=["no journal", "journal"])
def journal(request: pytest.FixtureRequest) -> bool:
    """Whether the servers and engines have a journal."""
    found: bool = request.param
    return found


def test_killed_server(tmp_path: Path, journal: bool) -> None:
    """After each kill, under load or in the middle of a start, a server keeps everything it acknowledged.

    Players join, restart static members, commit, leave, delete groups, create topics and transactional ids; generations
    don't fall.
    Compactions run all the while, and the test kills them as well.
    """
    chance = Random(7)
    load = Load(chance)
    settings = {**SETTINGS, "tenure.journal.enable": str(journal).lower(), "tenure.journal.bytes": JOURNAL_SIZE_MIN}
    server = Tenure(settings, directory=tmp_path)
    start_s = 1.0
    try:
        for round_ in range(ROUNDS):
            if chance.random() < 0.3:
                with suppress(ServerFailed):
                    server.start(within_s=chance.uniform(0.3, 1) * start_s)
                server.kill()
            begin = time.monotonic()
            server.start()
            start_s = time.monotonic() - begin
            load.check(server)
            load.run(server, chance.randint(1, 400), compacts=round_ % 4 == 0)
        server.start()
        load.check(server)
        assert server.count("compacted") >= ROUNDS // 4
        assert server.count("partition_damaged") == server.count("log_failed") == 0
    finally:
        server.close()


@pytest.mark.parametrize(
    ("players", "groups"),
    [
        pytest.param(1, 1, id="1 group", marks=pytest.mark.long),
        pytest.param(5, 2, id="10 groups"),
        pytest.param(10, 5, id="50 groups", marks=pytest.mark.long),
    ],
)
def test_killed_between_checkpoints(tmp_path: Path, players: int, groups: int) -> None:
    """However many of 50 partitions share a journal, a server keeps everything acknowledged after each kill.

    The journal has the smallest size, so that its files are written anew, behind checkpoints, in each round.
    """
    chance = Random(players)
    load = Load(chance, players, groups)
    settings = {**SETTINGS, "offsets.topic.num.partitions": 50, "tenure.journal.bytes": JOURNAL_SIZE_MIN}
    server = Tenure(settings, directory=tmp_path)
    written_anew = 0
    try:
        for _ in range(SPREAD_ROUNDS):
            server.start()
            load.check(server)
            load.run(server, chance.randint(100, 600), compacts=False)
            path = journal_path(server.data_dir, 1, 0)
            written_anew += SEQUENCE.unpack_from(path.read_bytes(), SEQUENCE_AT)[0] > 1
        server.start()
        load.check(server)
        assert written_anew > SPREAD_ROUNDS // 2
        assert server.count("partition_damaged") == server.count("log_failed") == 0
    finally:
        server.close()


def killed_appender(data_dir: Path, first: int, lines: int, *more: str) -> list[int]:
    """Run the process until it has acknowledged `lines` records and kill it; return all it acknowledged."""
    command = [sys.executable, "-m", "tests.log.appender", str(data_dir), str(first), *more]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        told = b"".join(process.stdout.readline() for _ in range(lines))
        process.kill()
        told += process.stdout.read()
    return [int(line) for line in told.splitlines()]


def test_killed_while_appending(tmp_path: Path, journal: bool) -> None:
    """After each kill a log has every acknowledged record once, in order, and at most those under way beyond them."""
    chance = Random(3)
    found: list[int] = []
    for _ in range(ROUNDS):
        first = len(found)
        acknowledged = killed_appender(tmp_path, first, chance.randint(1, 500), str(int(journal)))
        assert acknowledged == list(range(first, first + len(acknowledged)))
        events = Events()
        engine = EmbeddedEngine(tmp_path, 3, 1, report=events)
        engine.start(lambda _partition, _node_id, _epoch: None)
        found = numbers_of(opened(engine)[1])
        engine.close()
        assert found == list(range(len(found)))
        assert 0 <= len(found) - (first + len(acknowledged)) <= WINDOW
        assert set(events.names()) <= EXPECTED


def test_killed_while_compacting(tmp_path: Path, journal: bool) -> None:
    """After each kill, a compacted log has the last acknowledged record of each key, or one attempted later."""
    chance = Random(5)
    keys = 40
    first = 0
    fewest = []
    for _ in range(ROUNDS):
        acknowledged = killed_appender(tmp_path, first, chance.randint(200, 1_000), str(int(journal)), str(keys))
        first += len(acknowledged) + WINDOW
        events = Events()
        engine = EmbeddedEngine(tmp_path, 3, 1, report=events)
        engine.start(lambda _partition, _node_id, _epoch: None)
        records = opened(engine)[1]
        engine.close()
        last = {record.key: record for record in records}
        assert len(last) == keys
        newest = acknowledged[-1]
        for number in acknowledged[-keys:]:
            found = int(last[b"key-%d" % (number % keys)].value or b"")
            assert number <= found <= newest + WINDOW
            assert found % keys == number % keys
        assert set(events.names()) <= EXPECTED
        fewest.append(first - len(records))
    assert max(fewest) > 1_000
