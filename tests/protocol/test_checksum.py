"""The checksum is the CRC of RFC 3720, and adds no time to the start."""

from __future__ import annotations

import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from protocol.checksum import IEEE, behind_zeros, crc32c, shifted


@pytest.mark.parametrize(
    "data,expected",
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(reversed(range(32))), 0x113FDB5C),
    ],
)
def test_known_values(data: bytes, expected: int) -> None:
    """The examples of RFC 3720 (B.4) have their values, whole and in two parts, in any buffer."""
    assert crc32c(data) == expected
    for at in range(len(data)):
        assert crc32c(data[at:], crc32c(data[:at])) == expected
    assert crc32c(memoryview(b"x" + data)[1:]) == crc32c(bytearray(data)) == expected


@pytest.mark.parametrize("size", [0, 1, 2, 31, 1_000, 4_096, 1_000_003])
@pytest.mark.parametrize("crc", [0, 1, 0xE3069283, 0xFFFFFFFF])
def test_zeros_need_no_reading(crc: int, size: int) -> None:
    """The CRC of bytes with zeros behind them follows from that of the bytes; and that of a part from those of two."""
    assert behind_zeros(crc, size) == crc32c(bytes(size), crc)
    assert behind_zeros(crc, size, IEEE) == zlib.crc32(bytes(size), crc)
    part = bytes(range(256)) * (size // 256 + 1)
    assert crc32c(part, crc) == shifted(crc, len(part)) ^ crc32c(part)


def test_any_number_of_zeros() -> None:
    """They may be more than any file has."""
    assert behind_zeros(behind_zeros(7, 2**60), 2**61) == behind_zeros(7, 2**60 + 2**61)


def test_package_is_not_imported() -> None:
    """Only the extension is imported: the package would import importlib.metadata and much more."""
    program = "import sys, protocol.checksum; print({'crc32c', 'importlib.metadata', 'email'} & set(sys.modules))"
    root = Path(__file__).parents[2]
    output = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)
    assert output.stdout.strip() == "set()"
