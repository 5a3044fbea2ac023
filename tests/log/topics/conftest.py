"""Fixtures that the tests of topics' logs share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.log.disks import FailingDisk
from tests.log.topics.caller import Caller


@pytest.fixture
def caller(tmp_path: Path, disk: FailingDisk) -> Iterator[Caller]:
    """Yield a caller that works in a folder of the test's own."""
    caller = Caller(tmp_path, disk)
    yield caller
    caller.logs.close()
