"""`tenure serve --control` as a process: the ready line, its folder, its end, and starts that are refused."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from coordinator.config import load
from coordinator.testing.http.serving import is_on_disk, tenure_of
from tests.support import preloaded
from tests.support.certificates import Certificates, client_context
from tests.support.patience import WITHIN_S
from tests.support.tenure import READY_LINE

ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
COMMAND = [sys.executable, "-m", "coordinator.cli.main", "serve", "--listen", "127.0.0.1:0"]


def config_of(*sets: str) -> Any:
    """Return a configuration with control."""
    return load(sets=["tenure.control=127.0.0.1:0", *sets])[0]


def run(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Start a server that ends by itself."""
    return preloaded.run([*COMMAND, *arguments], cwd=folder, env=ENVIRONMENT | environment)


class Served:
    """A running process. data: as the ready line has it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        found = READY_LINE.fullmatch(process.stdout.readline().rstrip("\n"))
        assert found is not None
        self.data = found["data"]
        self.listen = found["listen"]
        self.nodes = [int(node) for node in found["node"].split(",")]
        self.control = found["control"]

    def ask(self, method: str, path: str, **fields: Any) -> Any:
        """Return the JSON of an answer."""
        connection = http.client.HTTPConnection(self.control, timeout=WITHIN_S)
        connection.request(method, path, json.dumps(fields) if fields else None)
        found = json.loads(connection.getresponse().read())
        connection.close()
        return found


@contextmanager
def serving(folder: Path, *arguments: str) -> Iterator[Served]:
    """Run a server with control, which works in `folder`."""
    with (folder / "log").open("w") as log:
        process = preloaded.popen(
            [*COMMAND, "--control", "127.0.0.1:0", *arguments], cwd=folder, env=ENVIRONMENT,
            stdout=subprocess.PIPE, stderr=log, text=True,
        )  # fmt: skip
    try:
        yield Served(process)
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_keeps_groups_in_memory_and_ends_on_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    """Without log.dirs it makes no folder. A signal ends it at once with exit code 0, while a request waits."""
    with serving(tmp_path, "--set", "num.io.threads=8") as served:
        assert served.data == "(memory)"
        assert served.ask("GET", "/v1")["data_dir"] is None
        served.ask("POST", "/v1/groups/workers/fill", count=1)
        served.ask("POST", "/v1/groups/workers/wait", state="Stable")
        waiting = http.client.HTTPConnection(served.control, timeout=WITHIN_S)
        waiting.request("POST", "/v1/groups/workers/wait", json.dumps({"members": 2, "timeout": 600}))
        served.ask("GET", "/v1")
        served.process.send_signal(number)
        answer = waiting.getresponse()
        assert (answer.status, json.loads(answer.read())["error"]) == (409, "the server doesn't run: start() it")
        waiting.close()
        rest, _ = served.process.communicate(timeout=WITHIN_S)
        assert (served.process.returncode, rest) == (0, "")
    assert [path.name for path in tmp_path.iterdir()] == ["log"]
    assert "num.io.threads" in (tmp_path / "log").read_text()


def test_several_nodes_are_in_the_ready_line(tmp_path: Path) -> None:
    """The line has the address and the id of each node, and the control the same."""
    with serving(tmp_path, "--set", "tenure.control.nodes=3") as served:
        nodes = served.ask("GET", "/v1")["nodes"]
        assert [node["id"] for node in nodes] == served.nodes == [0, 1, 2]
        assert ",".join(node["address"] for node in nodes) == served.listen
        assert served.data == "(memory)"


def test_a_folder_outlives_it_and_belongs_to_tests(tmp_path: Path) -> None:
    """With log.dirs a group is there at the next start. A folder of a server without control is refused."""
    data = tmp_path / "data"
    with serving(tmp_path, "--data-dir", str(data)) as served:
        assert served.data == str(data)
        served.ask("POST", "/v1/groups/workers/fill", count=1)
        served.ask("POST", "/v1/groups/workers/wait", state="Stable")
    with serving(tmp_path, "--data-dir", str(data)) as served:
        assert served.ask("GET", "/v1/groups/workers")["generation"] == 1
    production = tmp_path / "production"
    production.mkdir()
    (production / "meta.properties").write_text("version=1\ncluster.id=a\ntenure.offsets.topic.num.partitions=50\n")
    refused = run(tmp_path, "--control", "127.0.0.1:0", "--data-dir", str(production))
    assert (refused.returncode, refused.stdout) == (2, "")
    (line,) = refused.stderr.splitlines()
    assert line.startswith(f"tenure: --data-dir: a server without control made {production};")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--control", "0.0.0.0:0"], "--control: 0.0.0.0:0 is not of the loopback: set tenure.control.token"),
        (["--control", "127.0.0.1"], "--control: '127.0.0.1' is not HOST:PORT"),
        (["--control", "127.0.0.1:0", "--workers", "2"], "--control: it controls one process"),
        (["--control", "192.0.2.1:1", "--set", "tenure.control.token=t"], "--control: 192.0.2.1:1: "),
    ],
)
def test_a_start_that_is_refused_says_why(tmp_path: Path, arguments: list[str], words: str) -> None:
    """One line with the setting, and exit code 2."""
    refused = run(tmp_path, *arguments)
    assert (refused.returncode, refused.stdout) == (2, "")
    (line,) = refused.stderr.splitlines()
    assert words in line


def test_the_control_speaks_tls(tmp_path: Path, certificates: Certificates) -> None:
    """With tenure.control.ssl.* the control is served over TLS alone; a store that is missing prevents the start."""
    stores = [
        f"tenure.control.ssl.{name}={value}"
        for name, value in (("keystore.type", "PEM"), ("keystore.location", certificates.server))
    ]
    arguments = [argument for store in stores for argument in ("--set", store)]
    with serving(tmp_path, *arguments) as served:
        context = client_context(certificates.ca)
        url = f"https://{served.control}/openapi.json"
        with urllib.request.urlopen(url, timeout=WITHIN_S, context=context) as answer:
            assert answer.status == 200
    refused = run(tmp_path, "--control", "127.0.0.1:0", "--set", "tenure.control.ssl.keystore.type=PEM")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "ssl.keystore.location: a listener with TLS needs" in refused.stderr
    assert "(tenure.control)" in refused.stderr


def test_a_token_comes_from_the_environment(tmp_path: Path) -> None:
    """TENURE_CONTROL and TENURE_CONTROL_TOKEN are enough, as in a container; the token isn't in the log."""
    environment = {"TENURE_CONTROL": "0.0.0.0:0", "TENURE_CONTROL_TOKEN": "not-a-secret"}
    process = preloaded.popen(
        COMMAND, cwd=tmp_path, env=ENVIRONMENT | environment,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        served = Served(process)
        served.control = served.control.replace("0.0.0.0", "127.0.0.1")
        assert "is missing or wrong" in served.ask("GET", "/v1")["error"]
        process.terminate()
        _, log = process.communicate(timeout=WITHIN_S)
        assert "not-a-secret" not in log
    finally:
        process.kill()
        process.communicate()


def test_values_that_nobody_set_are_the_kits() -> None:
    """The kit's own values give way to any that is set."""
    config = tenure_of(config_of())._configs[0]
    assert (config.group.group_initial_rebalance_delay_ms, config.offsets_topic_num_partitions) == (100, 5)
    config = tenure_of(config_of("group.initial.rebalance.delay.ms=7", "offsets.topic.num.partitions=50"))._configs[0]
    assert (config.group.group_initial_rebalance_delay_ms, config.offsets_topic_num_partitions) == (7, 50)
    on_disk = config_of("log.dirs=elsewhere")
    assert is_on_disk(on_disk)
    config = tenure_of(on_disk)._configs[0]
    assert (config.events_enable, config.offsets_topic_num_partitions) == (True, 50)


def test_a_server_without_control_does_not_import_the_kit() -> None:
    """`tenure serve` pays for the test kit only with --control."""
    code = "import sys, coordinator.cli.main, coordinator.cli.serve; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "coordinator.cli.serve" in modules
    assert [name for name in modules if name.startswith("coordinator.testing")] == []
