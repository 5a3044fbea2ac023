"""CRC-32C, computed by the extension module of the package `crc32c`.

`_load` loads the extension without its package. To import the package takes ten times as long, a fifth of the time that
a server's start may take: it reads its own version through importlib.metadata, which imports the packages for e-mail
and ZIP files.

House rule: every CRC-32C of this project comes from here.
"""

from __future__ import annotations

from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Protocol

Buffer = bytes | bytearray | memoryview


class _Checksum(Protocol):
    def __call__(self, data: Buffer, crc: int = 0, /) -> int: ...


def _load() -> _Checksum:
    """Return the function of the extension; that of the package if a release of it has no extension of this name."""
    package = PathFinder.find_spec("crc32c")
    extension = package and PathFinder.find_spec("_crc32c", package.submodule_search_locations)
    if extension is None or extension.loader is None:
        import crc32c as module  # the long way
    else:
        module = module_from_spec(extension)
        extension.loader.exec_module(module)
    function: _Checksum = module.crc32c
    return function


crc32c = _load()
"""crc32c(data): the CRC-32C of `data`. crc32c(data, crc): that of `data` behind the bytes whose CRC-32C is `crc`."""
