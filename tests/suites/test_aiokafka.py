"""aiokafka's own tests of consumers, of its part in a group, and of transactions, with the aiokafka that is installed.

No package carries them, so they are left out unless AIOKAFKA_TESTS names a checkout of aiokafka's repository at the tag
of that release. Of the checkout only the tests are used, unmodified but for their conftest.py, which needs Docker.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.suites.outcomes import Otherwise, ServerUnderTest, of_report, run, unexpected
from tests.support.apache import VERSION

pytestmark = pytest.mark.suites

CONFTEST = Path(__file__).with_name("aiokafka_conftest.py")
TESTS = tuple(
    f"tests/test_{subject}.py"
    for subject in ("consumer", "coordinator", "transactional_consumer", "transactional_producer")
)
OTHERWISE = {
    "test_ssl_consume": Otherwise("It needs a listener with TLS; the suite's server has none.", "failed", "failed"),
}
# The image that its tests start has Kafka's own example of settings, which switches the delay off.
SETTINGS = {"num.partitions": "2", "group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "6000"}
TEST_COUNT_MIN = 110
WITHIN_S = 1200


def test_aiokafka(server: ServerUnderTest, checkout: Callable[[str], Path], tmp_path: Path) -> None:
    """Each test of its files about consumers, the coordinator and transactions passes, but for OTHERWISE."""
    shutil.copytree(checkout("aiokafka") / "tests", tmp_path / "tests")
    shutil.copy(CONFTEST, tmp_path / "tests" / "conftest.py")
    report = tmp_path / "report.xml"
    environment = {
        **os.environ,
        "SUITE_SERVER": server.start(SETTINGS),
        "SUITE_RELEASE": VERSION,
        "PYTHONPATH": str(tmp_path),
    }
    options = ["-c", os.devnull, "-p", "no:cacheprovider", "--rootdir", str(tmp_path), "-o", "asyncio_mode=auto"]
    run(
        [sys.executable, "-m", "pytest", *options, f"--junit-xml={report}", *TESTS],
        tmp_path,
        environment,
        tmp_path / "log",
        WITHIN_S,
    )
    found = of_report(report)
    assert len(found) >= TEST_COUNT_MIN, tmp_path / "log"
    assert list(unexpected(server.name, found, found, OTHERWISE)) == [], tmp_path / "log"
