"""`tenure users`: users are there before any server runs, and passwords are nowhere."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from coordinator.cli.exit_codes import ExitCode
from tests.support.tenure import Tenure, tenure_command

LISTENERS = {"SASL": "SASL_PLAINTEXT"}
PROPERTIES = "sasl.enabled.mechanisms=SCRAM-SHA-256,SCRAM-SHA-512\n"


def users(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command on a folder."""
    command = [*tenure_command(), "users", arguments[0], "--data-dir", str(folder), *arguments[1:]]
    return subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)


@pytest.fixture
def password(tmp_path: Path) -> str:
    """A file with a password."""
    path = tmp_path / "password"
    path.write_text("a long secret\n")
    return str(path)


def logs_in(tenure: Tenure, user: str, mechanism: str, password: str = "a long secret") -> bool:
    """Whether a real client gets an answer."""
    admin = AdminClient(
        {
            "bootstrap.servers": tenure.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
            "log_level": 0,
        }
    )
    try:
        return bool(admin.list_topics(timeout=5).brokers)
    except KafkaException:
        return False


def test_the_first_user_logs_in(tmp_path: Path, password: str) -> None:
    """Added before the first start, in a folder that wasn't there; removed while the server is stopped."""
    folder = tmp_path / "data"
    assert users(folder, "add", "alice", "--password-file", password).stdout == (
        "alice can log in by SCRAM-SHA-256 and SCRAM-SHA-512\n"
    )
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
        assert tenure.stop() == 0
        assert users(folder, "remove", "alice").returncode == ExitCode.DONE
        assert users(folder, "remove", "alice").returncode == ExitCode.NOT_FOUND
        tenure.start()
        assert not logs_in(tenure, "alice", "SCRAM-SHA-256")
        assert logs_in(tenure, "bob", "SCRAM-SHA-512")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("add", "alice", "--password-file", "/nowhere"), "--password-file: /nowhere: No such file"),
        (("add", "a\u0007", "--password-file", "PASSWORD"), "the name .*SASLprep forbids"),
        (("add", "alice", "--password-file", "PASSWORD", "--mechanism", "PLAIN"), "'PLAIN' is none of"),
        (("add", "alice", "--password-file", "EMPTY"), "the password is empty"),
    ],
)
def test_wrong_usage(tmp_path: Path, password: str, arguments: tuple[str, ...], problem: str) -> None:
    """One line says what is wrong, and nothing is made."""
    empty = tmp_path / "empty"
    empty.write_text("\n")
    given = [{"PASSWORD": password, "EMPTY": str(empty)}.get(each, each) for each in arguments]
    done = users(tmp_path / "data", *given)
    assert done.returncode == ExitCode.USAGE

    assert re.search(problem, done.stderr)
    assert not (tmp_path / "data").exists()
