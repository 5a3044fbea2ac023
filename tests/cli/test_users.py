"""`tenure users`: users are there before any server runs, and passwords are nowhere."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient

from coordinator.cli.exit_codes import ExitCode
from coordinator.cli.users import app
from tests.cli.conftest import Run, run_app
from tests.support.patience import WITHIN_S
from tests.support.preloaded import run
from tests.support.tenure import Tenure, tenure_command, wait_until

LISTENERS = {"SASL": "SASL_PLAINTEXT"}
PROPERTIES = "sasl.enabled.mechanisms=SCRAM-SHA-256,SCRAM-SHA-512\n"


def users(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command on a folder."""
    command = [*tenure_command(), "users", arguments[0], "--data-dir", str(folder), *arguments[1:]]
    return run(command)


@pytest.fixture
def password(tmp_path: Path) -> str:
    """A file with a password."""
    path = tmp_path / "password"
    path.write_text("a long secret\n")
    return str(path)


def logs_in(tenure: Tenure, user: str, mechanism: str, password: str = "a long secret") -> bool:
    """Whether a real client gets an answer, or its login is refused."""
    errors: list[KafkaError] = []
    settings: dict[str, Any] = {
        "bootstrap.servers": tenure.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
        "log_level": 0,
        "error_cb": errors.append,
    }
    admin = AdminClient(settings)
    answer = admin.describe_cluster(request_timeout=WITHIN_S)

    def is_decided() -> bool:
        admin.poll(0)
        return answer.done() or any(error.code() == KafkaError._AUTHENTICATION for error in errors)

    wait_until(is_decided, f"{user} logs in or is refused", WITHIN_S)
    return bool(answer.done() and answer.result().nodes)


def test_the_first_user_logs_in(tmp_path: Path, password: str) -> None:
    """Added before the first start, in a folder that wasn't there; removed while the server is stopped."""
    folder = tmp_path / "data"
    made = users(folder, "add", "alice", "--password-file", password)
    assert made.stdout == "alice can log in by SCRAM-SHA-256 and SCRAM-SHA-512\n"
    assert made.stderr == f"tenure: {folder} is a new data folder\n"
    done = users(
        folder, "add", "bob", "--password-file", password, "--mechanism", "SCRAM-SHA-512", "--iterations", "8192"
    )
    assert done.returncode == ExitCode.DONE
    assert users(folder, "list").stdout.split() == [
        *("USER", "MECHANISM", "ITERATIONS"),
        *("alice", "SCRAM-SHA-256", "4096"),
        *("alice", "SCRAM-SHA-512", "4096"),
        *("bob", "SCRAM-SHA-512", "8192"),
    ]
    assert "secret" not in "".join(path.read_text(errors="replace") for path in folder.iterdir() if path.is_file())
    with Tenure(directory=tmp_path, listeners=LISTENERS, properties=PROPERTIES) as tenure:
        assert logs_in(tenure, "alice", "SCRAM-SHA-256")
        assert logs_in(tenure, "bob", "SCRAM-SHA-512")
        assert not logs_in(tenure, "bob", "SCRAM-SHA-256")
        refused = users(folder, "remove", "alice")
        assert refused.returncode == ExitCode.USAGE
        assert "log.dirs: " in refused.stderr
        assert "--bootstrap-server HOST:PORT asks a running server" in refused.stderr
        assert tenure.stop() == 0
        assert users(folder, "remove", "alice").returncode == ExitCode.DONE
        assert users(folder, "remove", "alice").returncode == ExitCode.NOT_FOUND
        tenure.start()
        assert not logs_in(tenure, "alice", "SCRAM-SHA-256")
        assert logs_in(tenure, "bob", "SCRAM-SHA-512")


def test_users_of_a_running_server(run: Run, bootstrap: str, password: str) -> None:
    """Added, listed and removed over the network, on Tenure and on Apache Kafka alike."""

    def listed() -> list[list[str]]:
        rows = [line.split() for line in run(app, "list").out.splitlines()[1:]]
        return [row for row in rows if row[0] in {"carol", "dave"}]

    added = run(app, "add", "carol", "--password-file", password)
    assert (added.code, added.out) == (0, "carol can log in by SCRAM-SHA-256 and SCRAM-SHA-512\n")
    one = ("--password-file", password, "--mechanism", "SCRAM-SHA-512", "--iterations", "8192")
    assert run(app, "add", "dave", *one).code == 0
    all_of_them = [
        ["carol", "SCRAM-SHA-256", "4096"],
        ["carol", "SCRAM-SHA-512", "4096"],
        ["dave", "SCRAM-SHA-512", "8192"],
    ]
    wait_until(lambda: listed() == all_of_them, "all are listed", WITHIN_S)
    assert run(app, "remove", "carol", "--mechanism", "SCRAM-SHA-256").code == ExitCode.DONE
    removed = run(app, "remove", "carol")
    assert removed.out == "carol can no longer log in by SCRAM-SHA-512\n"
    assert run(app, "remove", "dave").code == ExitCode.DONE
    wait_until(lambda: listed() == [], "none is listed", WITHIN_S)
    gone = run(app, "remove", "carol")
    assert (gone.code, gone.out) == (ExitCode.NOT_FOUND, "")
    assert run_app(app, "list", "--bootstrap-server", bootstrap, "--data-dir", "x").code == ExitCode.USAGE


def test_a_user_that_is_added_while_the_server_runs_logs_in(tmp_path: Path, password: str) -> None:
    """The first user adds another over its own login, and no password is on the disk."""
    assert users(tmp_path / "data", "add", "admin", "--password-file", password).returncode == ExitCode.DONE
    properties = tmp_path / "client.properties"
    properties.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="admin" password="a long secret";\n'
    )
    with Tenure(directory=tmp_path, listeners=LISTENERS, properties=PROPERTIES) as tenure:
        place = ("--bootstrap-server", tenure.bootstrap, "--timeout", str(WITHIN_S))
        add = ("add", "erin", "--password-file", password, *place)
        assert not logs_in(tenure, "erin", "SCRAM-SHA-256")
        assert run_app(app, *add, "--command-config", str(properties)).code == ExitCode.DONE
        assert logs_in(tenure, "erin", "SCRAM-SHA-256")
        assert "a long secret" not in (tmp_path / "data" / "topics.json").read_text()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("add", "alice", "--password-file", "/nowhere"), "--password-file: /nowhere: No such file"),
        (("add", "a\u0007", "--password-file", "PASSWORD"), "the name .*SASLprep forbids"),
        (("add", "alice", "--password-file", "PASSWORD", "--mechanism", "PLAIN"), "'PLAIN' is none of"),
        (("add", "alice", "--password-file", "EMPTY"), "the password is empty"),
        (("add", "", "--password-file", "PASSWORD"), "the name is empty"),
        (
            ("list",),
            "log.dirs: .*/data is no data folder of a server; --bootstrap-server HOST:PORT asks a running server",
        ),
        (("remove", "alice"), "log.dirs: .*/data is no data folder of a server"),
    ],
)
def test_wrong_usage(tmp_path: Path, password: str, arguments: tuple[str, ...], problem: str) -> None:
    """One line says what is wrong, and nothing is made."""
    empty = tmp_path / "empty"
    empty.write_text("\n")
    given = [{"PASSWORD": password, "EMPTY": str(empty)}.get(each, each) for each in arguments]
    done = run_app(app, *given, "--data-dir", str(tmp_path / "data"))
    assert done.code == ExitCode.USAGE
    assert re.search(problem, done.err)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("number", ["4095", "16385", "x", "-1", "1.5"])
def test_iterations_have_limits(tmp_path: Path, number: str) -> None:
    """The line has the value and the limits, and no user is added."""
    ran = run_app(app, "add", "alice", "--data-dir", str(tmp_path), "--iterations", number)
    assert ran.code == 2
    assert f"'{number}' is not a whole number from 4096 to 16384" in re.sub(r"[│\s]+", " ", ran.err)
