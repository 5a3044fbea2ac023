"""CRC-32C, computed by the extension module of the package `crc32c`.

The extension is loaded by itself, as importing the package reads its own version through importlib.metadata, and so
brings in the packages for e-mail and ZIP files: ten times the work of the rest, and a fifth of what a server's start
may take.

House rule: whoever needs a CRC-32C takes it from here.
"""

from __future__ import annotations

from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Protocol

Buffer = bytes | bytearray | memoryview


class _Checksum(Protocol):
    def __call__(self, data: Buffer, crc: int = 0, /) -> int: ...


def _load() -> _Checksum:
    """Return the function of the extension, or of the package should it be built in another way one day."""
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
"""crc32c(data) is its CRC-32C; crc32c(data, crc) that of the bytes that `crc` stands for, followed by `data`."""
