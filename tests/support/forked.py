"""A process that a test forks, as multiprocessing's fork makes one.

House rule: it ends with `os._exit`, whatever happens in it.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tests.support.patience import WITHIN_S


@contextmanager
def forked(look: Callable[[], Any]) -> Iterator[Any]:
    """Fork; yield what `look` finds in the forked process, which ends behind the block."""
    answers, answer = os.pipe()
    ends, end = os.pipe()
    process_id = os.fork()
    if process_id == 0:
        signal.alarm(round(WITHIN_S))  # a process that hangs ends, and its test fails
        with suppress(BaseException):
            os.close(end)
            os.write(answer, json.dumps(look()).encode())
            os.close(answer)
            os.read(ends, 1)
        os._exit(0)
    os.close(answer)
    os.close(ends)
    try:
        with os.fdopen(answers) as file:
            yield json.loads(file.read())
        assert os.waitpid(process_id, os.WNOHANG) == (0, 0), "the forked process ended early"
    finally:
        os.close(end)
        with suppress(ChildProcessError):
            os.waitpid(process_id, 0)
