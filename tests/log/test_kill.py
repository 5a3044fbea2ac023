"""A process that appends is killed, over and over, at moments that it doesn't choose; what it acknowledged is there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from random import Random

from coordinator.log.embedded import EmbeddedEngine
from tests.log.appender import WINDOW
from tests.log.calls import Events, numbers_of, opened

ROOT = Path(__file__).parents[2]
ROUNDS = 200 if os.environ.get("HYPOTHESIS_PROFILE") == "nightly" else 8


def killed_appender(data_dir: Path, first: int, lines: int, *keys: str) -> list[int]:
    """Run the process until it has acknowledged `lines` records and kill it; return all it acknowledged."""
    command = [sys.executable, "-m", "tests.log.appender", str(data_dir), str(first), *keys]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        told = b"".join(process.stdout.readline() for _ in range(lines))
        process.kill()
        told += process.stdout.read()
    return [int(line) for line in told.splitlines()]


def test_killed_while_appending(tmp_path: Path) -> None:
    """After each kill: every acknowledged record, in order, none twice; at most what was under way beyond them."""
    chance = Random(3)
    found: list[int] = []
    for _ in range(ROUNDS):
        first = len(found)
        acknowledged = killed_appender(tmp_path, first, chance.randint(1, 1_000))
        assert acknowledged == list(range(first, first + len(acknowledged)))
        events = Events()
        engine = EmbeddedEngine(tmp_path, 3, 1, report=events)
        engine.start(lambda _partition, _node_id, _epoch: None)
        found = numbers_of(opened(engine)[1])
        engine.close()
        assert found == list(range(len(found)))
        assert 0 <= len(found) - (first + len(acknowledged)) <= WINDOW
        assert set(events.names()) <= {"tail_cut"}


def test_killed_while_compacting(tmp_path: Path) -> None:
    """After each kill, with compactions under way: of each key the last acknowledged record, or one attempted later."""
    chance = Random(5)
    keys = 40
    first = 0
    fewest = []
    for _ in range(ROUNDS):
        acknowledged = killed_appender(tmp_path, first, chance.randint(500, 4_000), str(keys))
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
        assert set(events.names()) <= {"tail_cut"}
        fewest.append(first - len(records))
    assert max(fewest) > 1_000
