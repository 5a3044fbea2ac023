"""librdkafka's own tests of groups, of transactions and of readers of committed records.

They are of the release that Confluent's client for Node.js contains; package-lock.json beside this file locks it. Its
package has librdkafka's source with its tests, which make builds without the libraries that these tests don't need.
0103 asks for topics of three replicas; it gets topics of one, as the server under test is one node.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.client import build_folder, run_build
from tests.suites.outcomes import Otherwise, Outcome, ServerUnderTest, run, unexpected
from tests.support.apache import VERSION

pytestmark = pytest.mark.suites

FOLDER = Path(__file__).parent
SOURCE = Path("node_modules", "@confluentinc", "kafka-javascript", "deps", "librdkafka")
WITHOUT = ("ssl", "gssapi", "curl", "zstd", "lz4-ext")
TESTS = (
    "0018_cgrp_term",
    "0019_list_groups",
    "0030_offset_commit",
    "0056_balanced_group_mt",
    "0061_consumer_lag",
    "0089_max_poll_interval",
    "0102_static_group_rebalance",
    "0103_transactions",
    "0113_cooperative_rebalance",
    "0118_commit_rebalance",
    "0129_fetch_aborted_msgs",
    "0130_store_offsets",
    "0132_strategy_ordering",
    "0137_barrier_batch_consume",
)
REPLICAS = (", 3, 5000)", ", 1, 5000)")
"""In 0103: the ends of its calls that make a topic, and what stands in their place."""
OTHERWISE: dict[str, Otherwise] = {}
# Those of the cluster that librdkafka's tests start: some tests need topics of four partitions.
SETTINGS = {"num.partitions": "4", "group.initial.rebalance.delay.ms": "3000", "group.min.session.timeout.ms": "6000"}
OUTCOMES: dict[str, Outcome] = {"PASSED": "passed", "FAILED": "failed", "SKIPPED": "skipped"}
WITHIN_S = 1800


def built() -> Path:
    """Return the folder of librdkafka's tests, with the built program `test-runner` in it."""
    with build_folder("librdkafka") as folder:
        made_of = (FOLDER / "package-lock.json").read_bytes() + REPLICAS[1].encode()
        stamp = folder / "built"
        if not stamp.exists() or stamp.read_bytes() != made_of:
            for name in ("package.json", "package-lock.json"):
                shutil.copy(FOLDER / name, folder)
            run_build(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], folder)
            transactions = folder / SOURCE / "tests" / "0103-transactions.c"
            text = transactions.read_text()
            assert REPLICAS[0] in text
            transactions.write_text(text.replace(*REPLICAS))
            run_build(["./configure", *(f"--disable-{library}" for library in WITHOUT)], folder / SOURCE)
            run_build(["make", "-j2", "libs"], folder / SOURCE)
            run_build(["make", "-j2", "-C", "tests", "build"], folder / SOURCE)
            stamp.write_bytes(made_of)
    return folder / SOURCE / "tests"


def test_librdkafka(server: ServerUnderTest, need: Callable[..., None], tmp_path: Path) -> None:
    """Each test of TESTS passes, but for OTHERWISE."""
    need("npm", "make", "gcc", "g++")
    folder = built()
    (tmp_path / "test.conf").write_text(f"metadata.broker.list={server.start(SETTINGS)}\ntest.topic.random=true\n")
    report = tmp_path / "report.json"
    environment = {
        **os.environ,
        "CI": "true",  # longer timeouts
        "RDKAFKA_TEST_CONF": str(tmp_path / "test.conf"),
        "TESTS": ",".join(name.partition("_")[0] for name in TESTS),
        "TEST_KAFKA_VERSION": VERSION,
        "TEST_REPORT": str(report),
        "LD_LIBRARY_PATH": f"{folder.parent / 'src'}:{folder.parent / 'src-cpp'}",
    }
    # -L: without the tests on librdkafka's own imitation of a server.
    run(["./test-runner", f"-p{len(TESTS)}", "-L"], folder, environment, tmp_path / "log", WITHIN_S)
    tests = json.loads(report.read_text())["tests"] if report.exists() else {}
    found = {name: OUTCOMES[tests[name]["state"]] for name in TESTS if name in tests}
    assert list(unexpected(server.name, TESTS, found, OTHERWISE)) == [], tmp_path / "log"
