"""Runs the tests that kafka-python has of itself against Tenure and against Apache Kafka.

    python -m tests.interop.peers

kafka-python's source release on PyPI carries them; it is fetched by pip, in the version that is installed here, and
its fixtures take a server that runs already (KAFKA_URI). Run are the file about consumers, their groups and offsets,
and of the admin client's the tests about groups, deleted records and offsets.

The exit code is 1 if a test passes on Apache Kafka and not on Tenure, but for what OTHERWISE names, or if none does.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ET
from importlib.metadata import version
from pathlib import Path

from tests.interop.client import build_folder, run_build
from tests.support.apache import VERSION, ApacheKafka
from tests.support.tenure import Tenure

PACKAGE = "kafka-python"
TESTS = ("test/integration/test_consumer_integration.py", "test/integration/test_admin_integration.py")
ABOUT_GROUPS = "test_consumer_integration or group or delete_records or list_partition_offsets"
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
OTHERWISE = {"test_kafka_version_infer": "it takes Fetch v17 for the sign of Kafka 3.9, and Tenure has v16"}
"""Tests that must fail on Tenure, and why."""
SETTINGS = {
    "num.partitions": "4",
    "group.min.session.timeout.ms": "1",
    "group.initial.rebalance.delay.ms": "0",
}
WITHIN_S = 600.0


def source() -> Path:
    """The unpacked source release, without its package: the installed one is tested."""
    name = f"{PACKAGE.replace('-', '_')}-{version(PACKAGE)}"
    with build_folder("peers") as folder:
        if not (folder / name).exists():
            pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "download", "--quiet"]
            options = ["--no-deps", "--no-build-isolation", "--no-binary", PACKAGE, "--dest", str(folder)]
            run_build([*pip, *options, f"{PACKAGE}=={version(PACKAGE)}"], folder)
            with tarfile.open(folder / f"{name}.tar.gz") as archive:
                tests = [member for member in archive.getmembers() if member.name.startswith(f"{name}/test/")]
                archive.extractall(folder, tests, filter="data")
            for path, text in LEFT_OUT.items():
                (folder / name / path).write_text(text)
    return folder / name


def run(folder: Path, server: str, bootstrap: str) -> dict[str, bool]:
    """Whether each test passed."""
    report = folder.parent / f"{server}.xml"
    report.unlink(missing_ok=True)
    options = [
        "-q",
        "--tb=short",
        "-c",
        os.devnull,
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(folder),
        "--confcutdir",
        str(folder),
    ]
    subprocess.run(
        [sys.executable, "-m", "pytest", *options, f"--junit-xml={report}", "-k", ABOUT_GROUPS, *TESTS],
        cwd=folder,
        env={
            **os.environ,
            "KAFKA_VERSION": VERSION,
            "KAFKA_URI": f"kafka://{bootstrap}",
            "KAFKA_ROOT": str(folder),  # asked for, and not used with a server that runs
            "PYTHONPATH": str(folder),
        },
        timeout=WITHIN_S,
        check=False,
    )
    return {
        case.attrib["name"]: case.find("failure") is None and case.find("error") is None
        for case in ET.parse(report).iter("testcase")
        if case.find("skipped") is None
    }


def main() -> int:
    """Run and compare."""
    folder = source()
    with Tenure(SETTINGS) as tenure:
        ours = run(folder, "tenure", tenure.bootstrap)
    with ApacheKafka(SETTINGS) as kafka:
        theirs = run(folder, "apache", kafka.bootstrap)
    worse = sorted(name for name, passed in theirs.items() if passed and not ours.get(name, False))
    for name in worse:
        print(f"passes on Apache Kafka only: {name}{f': {OTHERWISE[name]}' if name in OTHERWISE else ''}")
    print(
        f"{PACKAGE} {version(PACKAGE)}: {sum(ours.values())} of {len(ours)} pass on Tenure,"
        f" {sum(theirs.values())} of {len(theirs)} on Apache Kafka {VERSION}"
    )
    return 1 if worse != sorted(OTHERWISE) or not any(ours.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
