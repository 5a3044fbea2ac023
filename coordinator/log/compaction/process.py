"""The process that compacts, `python -m coordinator.log.compaction.process`: one log after the other.

It lives for several logs, as to start an interpreter takes a hundred times as long as to compact a small log. Each line
is JSON:

    standard input     {"folder": ..., "task": {the fields of Task}}    compact the log in this folder
    standard output    {"cleaned": Cleaned}                             a file is written
    standard input     an empty line                                    the file is swapped in, go on
    standard output    {the fields of Compaction} or {"error": ...}     it is done

The process ends when its standard input ends, whatever it does at that moment, so it doesn't outlive its parent. It
works inside the folder, so that a renamed folder is no trouble, and holds the lock `.lock-compaction` there: while the
process of a server that was killed still works, no other process compacts that log.

House rule: standard output has nothing but these lines.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from queue import SimpleQueue
from threading import Semaphore, Thread

from coordinator.log.compaction.rewrite import compact
from coordinator.log.compaction.task import Cleaned, Swap, Task
from coordinator.log.engine import Damaged
from coordinator.log.segments.disk import Disk, describe
from coordinator.log.segments.lock import Lock


def main() -> None:
    """Run until standard input ends."""
    swapped = Semaphore(0)
    asked: SimpleQueue[bytes] = SimpleQueue()
    Thread(target=_listen, args=(asked, swapped), daemon=True).start()

    def swap(cleaned: Cleaned) -> None:
        _print({"cleaned": cleaned})
        swapped.acquire()

    while True:
        order = json.loads(asked.get())
        _print(_compacted(order["folder"], Task(**order["task"]), swap))


def _compacted(folder: str, task: Task, swap: Swap) -> dict[str, object]:
    """Compact the log in a folder, from inside; return the last line about it."""
    try:
        os.chdir(folder)
        lock = Lock(Disk(), lock_path(Path()))
        try:
            return compact(Disk(), Path(), task, swap)._asdict()
        finally:
            lock.release()
    except BlockingIOError:
        return {"error": "another compaction is at work"}
    except Damaged as damage:
        file = str(Path(folder) / damage.file)
        return {"error": str(Damaged(file, damage.position, damage.reason))}
    except OSError as error:
        return {"error": describe(error)}


def lock_path(folder: Path) -> Path:
    """The lock of compactions of the log in `folder`."""
    return folder / ".lock-compaction"


def _print(line: dict[str, object]) -> None:
    sys.stdout.write(f"{json.dumps(line)}\n")
    sys.stdout.flush()


def _listen(asked: SimpleQueue[bytes], swapped: Semaphore) -> None:
    """Take the parent's lines; end the process when they end."""
    for line in sys.stdin.buffer:
        if line == b"\n":
            swapped.release()
        else:
            asked.put(line)
    os._exit(0)


if __name__ == "__main__":
    main()
