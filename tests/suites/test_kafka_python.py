"""kafka-python's own tests of consumers, groups, offsets, transactions and replicas, of the release that is installed.

Its source release on PyPI carries them, and pip fetches it. Their fixtures take a server that runs already (KAFKA_URI).
"""

from __future__ import annotations

import os
import re
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.interop.client import ROOT, run_build
from tests.suites.outcomes import Otherwise, ServerUnderTest, of_report, run, unexpected
from tests.support.apache import VERSION

pytestmark = pytest.mark.suites

PACKAGE = "kafka-python"
TESTS = tuple(f"test/integration/test_{subject}_integration.py" for subject in ("consumer", "admin", "producer"))
CHOSEN = (
    "test_consumer_integration or group or delete_records or list_partition_offsets"
    " or elect_leaders or log_dirs or reassignments or transactional"
)
LOCK = ROOT / "requirements" / "dev.txt"
SERVICE = """\
class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self):
        pass


class SpawnedService:
    pass
"""
LEFT_OUT = {"test/__init__.py": "", "test/service.py": SERVICE}
"""The tests import these classes, which the release lacks; a service is a server that tests start themselves."""
OTHERWISE = {
    "test_kafka_version_infer": Otherwise("Tenure has versions of APIs that 3.9 doesn't have.", "failed", "passed"),
    "test_kafka_consumer_offsets_for_time_old": Otherwise("It is for brokers before 0.10.1.", "skipped", "skipped"),
}
SETTINGS = {"num.partitions": "4", "group.min.session.timeout.ms": "1", "group.initial.rebalance.delay.ms": "0"}
TEST_COUNT_MIN = 28
WITHIN_S = 600


def unpacked(folder: Path) -> Path:
    """Return the tests of the source release without its package: the installed one is tested."""
    name = f"{PACKAGE.replace('-', '_')}-{version(PACKAGE)}"
    locked = re.search(rf"^{PACKAGE}==.*\n(?:    --hash=.*\n)+", LOCK.read_text(), re.MULTILINE)
    assert locked is not None
    (folder / "requirement.txt").write_text(locked[0].rstrip("\\\n"))
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "download", "--quiet"]
    options = ["--no-deps", "--no-build-isolation", "--no-binary", PACKAGE, "--require-hashes"]
    run_build([*pip, *options, "--dest", str(folder), "--requirement", str(folder / "requirement.txt")], folder)
    with tarfile.open(folder / f"{name}.tar.gz") as archive:
        for member in archive.getmembers():
            if member.name.startswith(f"{name}/test/") and (content := archive.extractfile(member)):
                (folder / member.name).parent.mkdir(parents=True, exist_ok=True)
                (folder / member.name).write_bytes(content.read())
    for path, text in LEFT_OUT.items():
        (folder / name / path).write_text(text)
    return folder / name


def test_kafka_python(server: ServerUnderTest, tmp_path: Path) -> None:
    """Each test of its files about consumers, groups, transactions and replicas passes, but for OTHERWISE."""
    folder = unpacked(tmp_path)
    report = tmp_path / "report.xml"
    environment = {
        **os.environ,
        "KAFKA_VERSION": VERSION,
        "KAFKA_URI": f"kafka://{server.start(SETTINGS)}",
        "KAFKA_ROOT": str(folder),  # asked for, and not used with a server that runs
        "PYTHONPATH": str(folder),
    }
    options = ["-c", os.devnull, "-p", "no:cacheprovider", "--rootdir", str(folder), "--confcutdir", str(folder)]
    command = [sys.executable, "-m", "pytest", *options, f"--junit-xml={report}", "-k", CHOSEN, *TESTS]
    run(command, folder, environment, tmp_path / "log", WITHIN_S)
    found = of_report(report)
    assert len(found) >= TEST_COUNT_MIN, tmp_path / "log"
    assert list(unexpected(server.name, found, found, OTHERWISE)) == [], tmp_path / "log"
