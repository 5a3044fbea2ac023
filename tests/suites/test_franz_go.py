"""franz-go's own tests of consumers, groups and transactions, of the release that tests/interop/go locks.

The module of that release contains its tests; `go test -c` builds them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from tests.interop.client import run_build
from tests.interop.go.clients import FOLDER
from tests.suites.outcomes import Otherwise, Outcome, ServerUnderTest, run, unexpected

pytestmark = pytest.mark.suites

PACKAGE = "github.com/twmb/franz-go/pkg/kgo"
FILES = ("consumer_test.go", "group_test.go", "txn_test.go")
NEW_PROTOCOL = "It asks for the consumer protocol of KIP-848, in the version of Kafka 4."
INTERNAL = "A regular expression finds `__consumer_offsets` in Kafka 4, and no internal topic in Tenure."
SHARE_GROUPS = "It asks for share groups."
OTHERWISE = {
    **{
        name: Otherwise(NEW_PROTOCOL, "passed", "skipped")
        for name in (
            "TestGroupETL/range/848",
            "TestGroupETL/sticky/848",
            "TestGroupETL/sticky/848/static",
            "TestGroupSimple/848",
        )
    },
    "Test848RegexBrokerResolves": Otherwise(INTERNAL, "failed", "skipped"),
    "TestConsumeRegexShareSkipsInternal": Otherwise(SHARE_GROUPS, "skipped", "skipped"),
}
SETTINGS = {"group.initial.rebalance.delay.ms": "0"}
RECORD_COUNT = 50_000
"""A tenth of the default: nine consumer groups at once read each record, and the test is about the groups."""
OUTCOMES = {"PASS": "passed", "FAIL": "failed", "SKIP": "skipped"}
WITHIN_S = 1200


def test_franz_go(server: ServerUnderTest, need: Callable[..., None], tmp_path: Path) -> None:
    """Each test of kgo's files about consumers, groups and transactions passes, but for OTHERWISE."""
    need("go")
    program = tmp_path / "kgo.test"
    run_build(["go", "test", "-c", "-mod=readonly", "-o", str(program), PACKAGE], FOLDER)
    source = Path(run_build(["go", "list", "-mod=readonly", "-f", "{{.Dir}}", PACKAGE], FOLDER).strip())
    tests = "".join((source / file).read_text() for file in FILES)
    wanted = re.findall(r"^func (Test\w+)\(", tests, re.MULTILINE)
    environment = {
        **os.environ,
        "KGO_SEEDS": server.start(SETTINGS),
        "KGO_TEST_RF": "1",
        "KGO_TEST_RECORDS": str(RECORD_COUNT),
    }
    command = [str(program), "-test.v", f"-test.run=^({'|'.join(wanted)})$", f"-test.timeout={WITHIN_S}s"]
    output = run(command, tmp_path, environment, tmp_path / "log", WITHIN_S + 10)
    lines = re.findall(r"^ *--- (PASS|FAIL|SKIP): (\S+)", output, re.MULTILINE)
    found = {name: cast("Outcome", OUTCOMES[word]) for word, name in lines}
    assert list(unexpected(server.name, wanted, found, OTHERWISE)) == [], tmp_path / "log"
