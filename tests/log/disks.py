"""Disks on real files that fail, lose bytes and tear writes.

FailingDisk raises where a test says so. CrashingDisk keeps in memory, beside the real files, the bytes and names that
survive a power cut. It treats a failed fdatasync as Linux does: the pages count as clean though they never got to the
disk.

House rule: chance comes from a seed that the test hands in.
"""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from coordinator.log.segments.disk import Disk

CALLS = (
    "open", "close", "lock", "size", "read", "write", "truncate", "fdatasync", "make_folder", "sync_folder",
    "list_folder", "rename", "remove",
)  # fmt: skip
"""The methods of Disk."""

PAGE_SIZE = 4096


def fail_one(name: str, number: int, error: int = errno.EIO) -> Callable[[str, int], OSError | None]:
    """Return a `fails` for one call of one method."""
    return lambda called, at: OSError(error, os.strerror(error)) if (called, at) == (name, number) else None


class OneFails:
    """A `fails` for `lasting` calls of a method from the `number`-th on. is_reached: whether such a call came."""

    def __init__(self, name: str, number: int, lasting: int) -> None:
        self.number = number
        self.is_reached = False
        self._name = name
        self._end = number + lasting

    def __call__(self, called: str, at: int) -> OSError | None:
        """See FailingDisk."""
        if called != self._name or not self.number <= at < self._end:
            return None
        self.is_reached = True
        return OSError(errno.EIO, "the test wants it")


def each_call(name: str, lasting: int = 1, step: int = 1) -> Iterator[OneFails]:
    """For n = 1, 2, 3, ..., or in larger steps, the n-th call of a method fails, until a run comes to no such call."""
    for number in count(1, step):
        fails = OneFails(name, number, lasting)
        yield fails
        if not fails.is_reached:
            assert number > 1
            return


class Killed(BaseException):
    """The process ends inside this call."""


class FailingDisk(Disk):
    """Raises what `fails(name, number)` returns before the `number`-th call, from 1, of its method `name`.

    `fails` returns an OSError, or Killed, which ends the process. If the disk `tears`, a failing write first writes
    half of its bytes. The disk really syncs nothing, because no test cuts the real power. calls: how often threads
    called each method. descriptors: the open files.
    """

    def __init__(self, fails: Callable[[str, int], BaseException | None] = lambda _name, _number: None) -> None:
        self.calls: Counter[str] = Counter()
        self.descriptors: set[int] = set()
        self.fails = fails
        self.tears = True
        self._lost: set[int] = set()
        self._guard = threading.Lock()

    def _count(self, name: str) -> None:
        with self._guard:
            self.calls[name] += 1
            error = self.fails(name, self.calls[name])
        if error is not None:
            raise error

    def open(self, path: Path, *, create: bool = False, anew: bool = False) -> int:
        self._count("open")
        with self._guard:
            return self._opened(super().open(path, create=create, anew=anew))

    def open_to_read(self, path: Path) -> int:
        self._count("open_to_read")
        with self._guard:
            return self._opened(super().open_to_read(path))

    def _opened(self, descriptor: int) -> int:
        self.descriptors.add(descriptor)
        self._lost.discard(descriptor)
        return descriptor

    def close(self, descriptor: int) -> None:
        with self._guard:  # or another thread opens a file of that number in between
            if descriptor in self._lost:  # what Python collects later of a killed process would close somebody else's
                return
            self.descriptors.remove(descriptor)
            super().close(descriptor)  # the system closes it, whatever error it returns
        self._count("close")

    def kill(self) -> None:
        """End the process: the system closes its files, and has what it wrote. Its threads must have ended."""
        for descriptor in self.descriptors:
            os.close(descriptor)
        self._lost |= self.descriptors
        self.descriptors.clear()

    def lock(self, descriptor: int) -> None:
        self._count("lock")
        super().lock(descriptor)

    def size(self, descriptor: int) -> int:
        self._count("size")
        return super().size(descriptor)

    def free(self, descriptor: int) -> int:
        self._count("free")
        return super().free(descriptor)

    def read(self, descriptor: int, size: int, position: int) -> bytes:
        self._count("read")
        return super().read(descriptor, size, position)

    def write(self, descriptor: int, parts: Sequence[bytes | memoryview], position: int) -> int:
        try:
            self._count("write")
        except OSError:
            if self.tears:
                joined = b"".join(parts)
                super().write(descriptor, [joined[: len(joined) // 2]], position)
            raise
        return super().write(descriptor, parts, position)

    def truncate(self, descriptor: int, size: int) -> None:
        self._count("truncate")
        super().truncate(descriptor, size)

    def fdatasync(self, descriptor: int) -> None:
        self._count("fdatasync")

    def make_folder(self, folder: Path) -> None:
        self._count("make_folder")
        super().make_folder(folder)

    def sync_folder(self, folder: Path) -> None:
        self._count("sync_folder")

    def list_folder(self, folder: Path) -> list[str]:
        self._count("list_folder")
        return super().list_folder(folder)

    def rename(self, old: Path, new: Path) -> None:
        self._count("rename")
        super().rename(old, new)

    def remove(self, path: Path) -> None:
        self._count("remove")
        super().remove(path)


class SharedDisk(Disk):
    """Lets several threads use another disk: one call at a time."""

    def __init__(self, disk: Disk) -> None:
        guard = threading.Lock()
        for name in (*CALLS, "open_to_read"):
            setattr(self, name, _guarded(getattr(disk, name), guard))


def _guarded(call: Callable[..., Any], guard: threading.Lock) -> Callable[..., Any]:
    def guarded(*arguments: Any, **options: Any) -> Any:
        with guard:
            return call(*arguments, **options)

    return guarded


class _File:
    """A file as the machine knows it: `durable` bytes, and `dirty` pages of its cache."""

    def __init__(self, durable: bytes = b"") -> None:
        self.durable = bytearray(durable)
        self.dirty: set[int] = set()


class _Change(NamedTuple):
    """A name came (`new`), went (`old`) or changed; the file that it took away had this content in the cache."""

    old: Path | None
    new: Path | None
    file: _File | None
    lost: _File | None
    content: bytes


class CrashingDisk(FailingDisk):
    """Keeps the durable bytes, beside the real files, which stand for the cache.

    in_order: pages get to the disk from the front; otherwise in any order until they are synced.
    """

    def __init__(self, chance: Random, *, in_order: bool = True, garbles: bool = False) -> None:
        super().__init__()
        self._chance = chance
        self._in_order = in_order
        self._garbles = garbles
        self._files: dict[Path, _File] = {}
        self._paths: dict[int, Path] = {}
        self._changes: list[_Change] = []

    def open(self, path: Path, *, create: bool = False, anew: bool = False) -> int:
        is_new = not path.exists()
        descriptor = super().open(path, create=create, anew=anew)
        if is_new:
            self._files[path] = _File()
            self._changes.append(_Change(None, path, self._files[path], None, b""))
        self._known(path)
        self._paths[descriptor] = path
        return descriptor

    def open_to_read(self, path: Path) -> int:
        descriptor = super().open_to_read(path)
        self._known(path)
        self._paths[descriptor] = path
        return descriptor

    def close(self, descriptor: int) -> None:
        self._paths.pop(descriptor, None)
        super().close(descriptor)

    def write(self, descriptor: int, parts: Sequence[bytes | memoryview], position: int) -> int:
        try:
            return super().write(descriptor, parts, position)
        finally:
            end = position + sum(map(len, parts))
            self._files[self._paths[descriptor]].dirty |= set(range(position // PAGE_SIZE, -(-end // PAGE_SIZE)))

    def fdatasync(self, descriptor: int) -> None:
        path = self._paths[descriptor]
        file = self._files[path]
        try:
            self._count("fdatasync")
        except OSError:
            if self._garbles:
                for page in file.dirty:
                    part = slice(page * PAGE_SIZE, (page + 1) * PAGE_SIZE)
                    file.durable[part] = bytes(len(file.durable[part]))
            else:
                self._write_back_some(file, path.read_bytes())
            file.dirty.clear()
            raise
        cached = path.read_bytes()
        for page in sorted(file.dirty):
            _persist(file, cached, page)
        file.dirty.clear()
        del file.durable[len(cached) :]

    def make_folder(self, folder: Path) -> None:
        missing = [each for each in (folder, *folder.parents) if not each.exists()]
        super().make_folder(folder)
        self._changes += [_Change(None, each, None, None, b"") for each in reversed(missing)]

    def sync_folder(self, folder: Path) -> None:
        self._count("sync_folder")
        self._changes = [change for change in self._changes if folder not in map(_folder, (change.old, change.new))]

    def rename(self, old: Path, new: Path) -> None:
        file, lost = self._known(old), self._known(new) if new.exists() else None
        content = new.read_bytes() if new.exists() else b""
        super().rename(old, new)
        self._files[new] = self._files.pop(old)
        self._paths |= {descriptor: new for descriptor, path in self._paths.items() if path == old}
        self._changes.append(_Change(old, new, file, lost, content))

    def remove(self, path: Path) -> None:
        lost, content = self._known(path), path.read_bytes()
        super().remove(path)
        del self._files[path]
        self._changes.append(_Change(path, None, None, lost, content))

    def kill(self) -> None:
        """End the process: the cache keeps the bytes that it wrote."""
        super().kill()
        self._paths.clear()

    def crash(self) -> None:
        """Cut the power: unsynced bytes and names may be there or not, in part or as a whole."""
        self.kill()
        for change in reversed(self._changes):
            if self._chance.random() < 0.5:
                self._undo(change)
        self._changes.clear()
        for path, file in self._files.items():
            self._write_back_some(file, path.read_bytes())
            with path.open("r+b") as cache:  # not "wb": ext4 would really write a file that is replaced in this way
                cache.write(file.durable)
                cache.truncate()
            file.dirty.clear()

    def _known(self, path: Path) -> _File:
        """Return the file of that name; a file that this disk didn't make is durable."""
        if path not in self._files:
            self._files[path] = _File(path.read_bytes())
        return self._files[path]

    def _undo(self, change: _Change) -> None:
        """Take a change of names back, unless a change that stays needs it."""
        if change.new is not None and change.file is None:
            shutil.rmtree(change.new, ignore_errors=True)
            self._files = {path: file for path, file in self._files.items() if change.new not in path.parents}
            return
        is_there = change.new is None or self._files.get(change.new) is change.file
        if not is_there or (change.old is not None and (change.old.exists() or not change.old.parent.exists())):
            return
        if change.new is not None and change.file is not None:
            file = self._files.pop(change.new)
            if change.old is None:
                change.new.unlink()
            else:
                change.new.rename(change.old)
                self._files[change.old] = file
        back = change.new or change.old
        if change.lost is not None and back is not None:
            back.write_bytes(change.content)
            self._files[back] = change.lost

    def _write_back_some(self, file: _File, cached: bytes) -> None:
        dirty = sorted(file.dirty)
        if self._in_order:
            dirty = dirty[: self._chance.randint(0, len(dirty))]
        else:
            dirty = [page for page in dirty if self._chance.random() < 0.5]
        for page in dirty:
            torn = page == dirty[-1] and self._chance.random() < 0.5
            _persist(file, cached, page, self._chance.randrange(PAGE_SIZE) if torn else PAGE_SIZE)
        if len(file.durable) > len(cached) and self._chance.random() < 0.5:
            del file.durable[len(cached) :]


def _folder(path: Path | None) -> Path | None:
    return path and path.parent


def _persist(file: _File, cached: bytes, page: int, size: int = PAGE_SIZE) -> None:
    """Write the first `size` bytes of a page of the cache back to the disk."""
    start = page * PAGE_SIZE
    content = cached[start : start + size]
    if content:
        file.durable.extend(bytes(max(0, start - len(file.durable))))
        file.durable[start : start + len(content)] = content
