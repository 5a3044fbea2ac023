"""A process that a test forks gives up its copies of the kit's sockets and files, before anything else runs in it.

Linux copies all descriptors into a forked process (multiprocessing's default before Python 3.14). A copy keeps a port
taken, a lock held and a connection open after the server has closed its own. So `kill` and `start` would fail, and a
client would wait for a server that is gone.

A holder (`Tenure`, a connection of a scripted member) registers with `hold`. In the forked process each holder forgets
its thread and says what it had. Each such descriptor becomes one of /dev/null, under its number: an object that still
refers to the number closes nothing else. The fork returns in the test when this is done.

House rule: the forked process takes no lock of another thread and asks no event loop.
"""

from __future__ import annotations

import os
import socket
import stat
from contextlib import suppress
from itertools import chain
from threading import Lock
from typing import Any, NamedTuple, Protocol
from weakref import WeakSet

Connection = tuple[Any, Any]
"""The addresses of both ends of a socket, its own first."""


class Held(NamedTuple):
    """The descriptors of a holder.

    ports: of all its listeners; connections that came through them have them too. connections: further ones.
    folders: all files below them.
    """

    ports: frozenset[int] = frozenset()
    connections: frozenset[Connection] = frozenset()
    folders: frozenset[str] = frozenset()


FORKED = "this is a forked process, and the server runs in its parent: call Tenure and what it made in the parent only"
"""The error of a call in a forked process."""


class Holder(Protocol):
    """Has descriptors that no forked process may have."""

    def let_go(self) -> Held:
        """Forget all threads, in the forked process, and say what is held."""


_holders: WeakSet[Holder] = WeakSet()


class _Forking:
    """One fork at a time. The forked process closes its end of the pipe when it has let go, or when it dies."""

    def __init__(self) -> None:
        self._turn = Lock()
        self._pipe: tuple[int, int] | None = None

    def begin(self) -> None:
        """Before the fork."""
        self._turn.acquire()
        self._pipe = None
        if _holders:
            self._pipe = os.pipe()

    def end_in_parent(self) -> None:
        """Wait until the forked process has let go."""
        try:
            if self._pipe is not None:
                reading, writing = self._pipe
                os.close(writing)
                os.read(reading, 1)
                os.close(reading)
        finally:
            self._turn.release()

    def end_in_child(self) -> None:
        """Let go of all that the holders have."""
        self._turn.release()
        try:
            _replace(list(_holders))
        finally:
            for end in self._pipe or ():
                os.close(end)


_forking = _Forking()
os.register_at_fork(before=_forking.begin, after_in_parent=_forking.end_in_parent, after_in_child=_forking.end_in_child)


def hold(holder: Holder) -> None:
    """Have forked processes let go of what this holder has, as long as it lives."""
    _holders.add(holder)


def _replace(holders: list[Holder]) -> None:
    """Put /dev/null in the place of each descriptor that a holder has."""
    if not holders:
        return
    each = [holder.let_go() for holder in holders]
    held = Held(
        ports=frozenset(chain.from_iterable(one.ports for one in each)),
        connections=frozenset(chain.from_iterable(one.connections for one in each)),
        folders=frozenset(chain.from_iterable(one.folders for one in each)),
    )
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in map(int, os.listdir("/dev/fd")):  # noqa: PTH208 - a Path would be made for each of thousands
        with suppress(OSError):  # the descriptor of the listing itself, or a socket that is no longer connected
            if _is_held(descriptor, held):
                os.dup2(null, descriptor, inheritable=False)
    os.close(null)


def _is_held(descriptor: int, held: Held) -> bool:
    """Whether a holder has the descriptor. Raises OSError for one that is closed."""
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        path = os.readlink(f"/dev/fd/{descriptor}")  # noqa: PTH115 - as above
        return any(path == folder or path.startswith(f"{folder}/") for folder in held.folders)
    if not stat.S_ISSOCK(mode):
        return False
    with socket.socket(fileno=os.dup(descriptor)) as found:
        if found.family not in {socket.AF_INET, socket.AF_INET6}:
            return False
        own = found.getsockname()
        return own[1] in held.ports or (own, found.getpeername()) in held.connections
