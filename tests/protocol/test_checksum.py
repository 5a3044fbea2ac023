"""The checksum is the CRC of RFC 3720, and adds no time to the start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from protocol.checksum import crc32c


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


def test_package_is_not_imported() -> None:
    """Only the extension is imported: the package would import importlib.metadata and much more."""
    program = "import sys, protocol.checksum; print({'crc32c', 'importlib.metadata', 'email'} & set(sys.modules))"
    root = Path(__file__).parents[2]
    output = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)
    assert output.stdout.strip() == "set()"
