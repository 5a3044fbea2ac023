"""sarama's own tests of transactions, of the release that tests/interop/go locks.

The module of that release contains them. They are for five brokers behind a proxy; here they run on one server, so a
copy of their environment has its address in place of the proxy's, and topics of one replica.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from tests.interop.client import build_folder, run_build
from tests.interop.go.clients import FOLDER
from tests.suites.outcomes import Otherwise, Outcome, ServerUnderTest, run, unexpected
from tests.support.apache import VERSION

pytestmark = pytest.mark.suites

PACKAGE = "github.com/IBM/sarama"
FILES = (
    "functional_producer_test.go",
    "functional_describe_producers_test.go",
    "functional_describe_transactions_test.go",
    "functional_list_transactions_test.go",
)
WANTED = re.compile(r"^func (TestFunc(?:Txn|Describe|List)\w+)\(", re.MULTILINE)
OTHERWISE = {
    "TestFuncTxnProduceWithBrokerFailure": Otherwise("It stops one of several brokers, in Docker.", "failed", "failed"),
}
CHANGES = (
    (r"ReplicationFactor: 3", "ReplicationFactor: 1"),
    (
        r"(func setupToxiProxies\(.*\{\n)[\s\S]*?\n\}\n",
        r'\1\tenv.KafkaBrokerAddrs = []string{strings.TrimPrefix(endpoint, "//")}\n\treturn nil\n}\n',
    ),
    (r"(func resetProxies\(.*\{\n)[\s\S]*?\n\}\n", r"\1}\n"),
    (r"// config\.Producer\.Retry\.Backoff = 0", "config.Producer.Retry.Max = 100"),
)
"""Of functional_test.go: a pattern, and what stands in its place. The last one gives Kafka 10 s to lead a new topic, as
sarama's 0.3 s are too short on a busy machine.
"""
SETTINGS = {"group.initial.rebalance.delay.ms": "0"}
OUTCOMES = {"PASS": "passed", "FAIL": "failed", "SKIP": "skipped"}
WITHIN_S = 900


def built() -> Path:
    """Return the folder of sarama's tests, with the built program `sarama.test` in it."""
    with build_folder("sarama") as folder:
        lock = (FOLDER / "go.sum").read_bytes() + Path(__file__).read_bytes()
        stamp, source = folder / "built", folder / "source"
        if not stamp.exists() or stamp.read_bytes() != lock:
            shutil.rmtree(source, ignore_errors=True)
            given = run_build(["go", "list", "-mod=readonly", "-f", "{{.Dir}}", PACKAGE], FOLDER).strip()
            shutil.copytree(given, source, copy_function=shutil.copyfile)  # a module's files can't be changed
            source.chmod(0o755)
            environment = source / "functional_test.go"
            text = environment.read_text()
            for pattern, replacement in CHANGES:
                text, count = re.subn(pattern, replacement, text)
                assert count, pattern
            environment.write_text(text)
            run_build(["go", "test", "-c", "-mod=readonly", "-tags", "functional", "-o", "sarama.test", "."], source)
            stamp.write_bytes(lock)
    return source


def test_sarama(server: ServerUnderTest, need: Callable[..., None], tmp_path: Path) -> None:
    """Each of sarama's tests of transactions passes, but for OTHERWISE."""
    need("go")
    source = built()
    wanted = [name for file in FILES for name in WANTED.findall((source / file).read_text())]
    environment = {**os.environ, "TOXIPROXY_ADDR": f"//{server.start(SETTINGS)}", "KAFKA_VERSION": VERSION}
    command = [str(source / "sarama.test"), "-test.v", f"-test.run=^({'|'.join(wanted)})$"]
    output = run([*command, f"-test.timeout={WITHIN_S}s"], source, environment, tmp_path / "log", WITHIN_S + 10)
    found = {
        name: cast("Outcome", OUTCOMES[word]) for word, name in re.findall(r"^--- (\w+): (\S+)", output, re.MULTILINE)
    }
    assert list(unexpected(server.name, wanted, found, OTHERWISE)) == [], tmp_path / "log"
