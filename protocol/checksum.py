"""CRC-32C, computed by the extension module of the package `crc32c`.

`_load` loads the extension without its package. To import the package takes ten times as long, a fifth of the time that
a server's start may take: it reads its own version through importlib.metadata, which imports the packages for e-mail
and ZIP files.

A CRC is a remainder of a division of polynomials. So `shifted` finds what zeros behind some bytes make of their CRC,
without going through the zeros (https://www.zlib.net/crc_v3.txt explains the arithmetic).

House rule: every CRC-32C of this project comes from here.
"""

from __future__ import annotations

from functools import cache
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Protocol

Buffer = bytes | bytearray | memoryview

CASTAGNOLI, IEEE = 0x82F63B78, 0xEDB88320
"""The polynomials of CRC-32C, and of zlib's CRC-32. The highest bit is the coefficient of x to the power 0."""

_ALL, _ONE, _X_8 = 2**32 - 1, 2**31, 2**23


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


def shifted(crc: int, size: int, polynomial: int = CASTAGNOLI) -> int:
    """The polynomial `crc` times x to the power of `size` bytes.

    So crc32c(data, crc) is shifted(crc, len(data)) ^ crc32c(data).
    """
    doublings = 0
    while size:
        if size & 1:
            crc = _product(_power(doublings, polynomial), crc, polynomial)
        size >>= 1
        doublings += 1
    return crc


def behind_zeros(crc: int, size: int, polynomial: int = CASTAGNOLI) -> int:
    """The CRC of bytes with this CRC, and `size` zeros behind them."""
    return shifted(crc ^ _ALL, size, polynomial) ^ _ALL


@cache
def _power(doublings: int, polynomial: int) -> int:
    """The polynomial x to the power of 2**doublings bytes."""
    if not doublings:
        return _X_8
    half = _power(doublings - 1, polynomial)
    return _product(half, half, polynomial)


def _product(one: int, other: int, polynomial: int) -> int:
    product = 0
    while one:
        if one & _ONE:
            product ^= other
        one = one << 1 & _ALL
        other = other >> 1 ^ (polynomial if other & 1 else 0)
    return product
