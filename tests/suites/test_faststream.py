"""FastStream's own tests of its brokers on aiokafka and on confluent-kafka, those that ask a real broker.

No package carries them, so they are left out unless FASTSTREAM_TESTS names a checkout of FastStream's repository at the
tag of RELEASE. Of the checkout only the tests are used, unmodified but for the server's address. faststream.txt beside
this file locks FastStream and the packages that the tests import.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.suites.environment import environment
from tests.suites.outcomes import Otherwise, ServerUnderTest, of_report, run, unexpected

pytestmark = pytest.mark.suites

LOCK = Path(__file__).with_name("faststream.txt")
PLUGIN = Path(__file__).with_name("faststream_plugin.py")
RELEASE = "0.7.4"
ADDRESS = "localhost:9092"
# It imports FastStream's brokers for other systems, and asks none.
LEFT_OUT = "*/test_misconfigure.py"
OTHERWISE: dict[str, Otherwise] = {}
SETTINGS = {"group.initial.rebalance.delay.ms": "0"}
WITHIN_S = 900


@pytest.mark.parametrize(("broker", "test_count"), [("kafka", 206), ("confluent", 195)])
def test_faststream(
    broker: str, test_count: int, kit_server: ServerUnderTest, checkout: Callable[[str], Path], tmp_path: Path
) -> None:
    """Each test of this broker that its authors marked `connected` passes, but for OTHERWISE."""
    shutil.copytree(checkout("faststream") / "tests", tmp_path / "tests")
    assert f"faststream=={RELEASE} " in LOCK.read_text()
    server = kit_server.start(SETTINGS)
    settings = tmp_path / "tests" / "brokers" / broker / "settings.py"
    text = settings.read_text()
    assert ADDRESS in text
    settings.write_text(text.replace(ADDRESS, server))
    shutil.copy(PLUGIN, tmp_path)
    report = tmp_path / "report.xml"
    options = ["-c", os.devnull, "-p", "no:cacheprovider", "-p", PLUGIN.stem, "--rootdir", str(tmp_path)]
    chosen = ["-m", "connected", "--timeout=30", f"--ignore-glob={LEFT_OUT}", f"tests/brokers/{broker}"]
    run(
        [str(environment(LOCK)), "-m", "pytest", *options, f"--junit-xml={report}", *chosen],
        tmp_path,
        {**os.environ, "SUITE_SERVER": server, "PYTHONPATH": str(tmp_path)},
        tmp_path / "log",
        WITHIN_S,
    )
    found = of_report(report, with_class=True)
    assert len(found) == test_count, tmp_path / "log"
    assert list(unexpected(kit_server.name, found, found, OTHERWISE)) == [], tmp_path / "log"
