"""`tenure observe` refuses wrong options in one line; tests/observe has what it does."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator.testing.tenure import Tenure
from tests.cli.conftest import at
from tests.observe.test_observer import SETTINGS, observing
from tests.support.ports import refusing_port
from tests.support.preloaded import run
from tests.support.tenure import tenure_command


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--http", "nowhere"), "--http: "),
        (("--http", "0.0.0.0:0"), "--http: "),
        (("--bootstrap-server", "kafka"), "--bootstrap-server: 'kafka' is not HOST:PORT"),
        (("--command-config", "absent.properties"), "--command-config: "),
        (("--events", "absent/events.json"), "--events: there is no folder absent"),
        (("--webhook", "file:///tmp/x"), "--webhook: it is no URL of http or https"),
        (("--webhook", "http://h", "--webhook-form", "teams"), "--webhook-form: 'teams' is none of json, slack"),
        (("--webhook-secret-file", "absent"), "--webhook-secret-file: absent: No such file or directory"),
        (("--webhook-secret-file", "/dev/null"), "--webhook-secret-file: /dev/null is empty"),
        (("--set", "group.max.size=3"), "--set group.max.size: an observer has no such setting, only tenure.http.*, "),
        (("--set", "tenure.http.ssl.keystore.location=web.pem"), "tenure.http.ssl.*: "),
    ],
)
def test_wrong_usage_is_one_line(arguments: tuple[str, ...], text: str) -> None:
    """A wrong option ends the command with one line that names it."""
    ran = run([*tenure_command(), "observe", *arguments])
    assert ran.returncode == 2
    assert ran.stderr.removeprefix("tenure: ").startswith(text)
    assert ran.stderr.count("\n") == 1


def test_without_a_cluster_it_is_never_ready() -> None:
    """If no cluster answers, it ends with exit code 5 and one line, and never says that it is ready."""
    with refusing_port() as port:
        command = [*tenure_command(), "observe", "--http", "127.0.0.1:0", *at(f"127.0.0.1:{port}")]
        ran = run(command)
    assert (ran.returncode, ran.stdout) == (5, "")
    assert ran.stderr.startswith(f"tenure: 127.0.0.1:{port}: Connection refused")
    assert ran.stderr.count("\n") == 1


def test_a_taken_port_is_one_line(tmp_path: Path) -> None:
    """An address that is in use ends the command with one line."""
    with Tenure(settings=SETTINGS) as cluster, observing(cluster.bootstrap_servers, tmp_path) as observer:
        command = [*tenure_command(), "observe", "--http", observer.url.removeprefix("http://")]
        command += at(cluster.bootstrap_servers)
        ran = run(command)
    assert ran.returncode == 2
    assert "--http: " in ran.stderr
    assert "in use" in ran.stderr
