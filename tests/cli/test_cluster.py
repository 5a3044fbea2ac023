"""Each failure between a command and a cluster is an exit code and one line, never a traceback."""

from __future__ import annotations

import subprocess

import pytest

from coordinator.cli.groups import app
from coordinator.cli.members import app as members_app
from protocol.messages import LeaveGroupResponse, ListGroupsResponse
from schemas.errors import ErrorCode
from tests.cli.conftest import run_app
from tests.client.scripted import HANG_UP, SILENCE, Scripted
from tests.support.patience import WITHIN_S
from tests.support.ports import refusing_port
from tests.support.tenure import tenure_command


def test_unreachable_server_ends_with_5_in_time() -> None:
    """The real command gives up in time, in one line, if nobody listens on the port."""
    with refusing_port() as port:
        address = f"127.0.0.1:{port}"
        done = subprocess.run(
            [*tenure_command(), "groups", "list", "--bootstrap-server", address, "--timeout", "0.5"],
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
    assert (done.returncode, done.stdout) == (5, "")
    assert done.stderr.startswith(f"tenure: {address}")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("answer", "code", "why"),
    [
        (ListGroupsResponse(), 0, ""),
        (ListGroupsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED), 4, "CLUSTER_AUTHORIZATION_FAILED"),
        (ListGroupsResponse(error_code=30_000), 4, "error 30000"),
        (SILENCE, 5, "did not answer in time"),
        (HANG_UP, 5, "closed the connection"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", 5, "does not speak Kafka's protocol"),
    ],
    ids=["answer", "refusal", "refusal of tomorrow", "silence", "hang-up", "not Kafka"],
)
def test_each_failure_has_its_code_and_one_line(answer: object, code: int, why: str) -> None:
    """Each failure of a server has its exit code and its line."""
    with Scripted({"ListGroups": [answer]}) as server:
        # These two are tried until the time is up.
        timeout_s = 1.0 if answer in (SILENCE, HANG_UP) else WITHIN_S
        ran = run_app(app, "list", "--bootstrap-server", server.bootstrap, "--timeout", str(timeout_s))
    assert ran.code == code
    assert why in ran.err
    assert ran.err.count("\n") == (1 if code else 0)


def test_too_old_server_is_a_refusal() -> None:
    """The error names the API and the version that the server is too old for."""
    with Scripted({"LeaveGroup": [LeaveGroupResponse()]}, {"LeaveGroup": (0, 2)}) as server:
        arguments = ["remove", "--group", "g", "--instance-id", "a", "--bootstrap-server", server.bootstrap]
        ran = run_app(members_app, *arguments)
    assert ran.code == 4
    assert "LeaveGroupRequest 0 to 2, 3 or later is needed: UNSUPPORTED_VERSION" in ran.err


def test_default_server_is_the_local_one() -> None:
    """Without the option, the server is 127.0.0.1:9092."""
    ran = run_app(app, "list", "--help")
    assert "127.0.0.1:9092" in ran.out
