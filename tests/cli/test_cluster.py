"""Each failure between a command and a cluster is an exit code and one line, never a traceback."""

from __future__ import annotations

import os
import pty
import select
import socket
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pytest

from coordinator.cli.groups import app
from coordinator.cli.members import app as members_app
from coordinator.client.client import Client
from coordinator.security.acls import CLUSTER_NAME, Kind, Operation
from protocol.messages import CreateAclsRequest, FindCoordinatorResponse, LeaveGroupResponse, ListGroupsResponse
from schemas.errors import ErrorCode
from tests.cli.conftest import make_app, run_app, run_out_of_time
from tests.client.scripted import HANG_UP, SILENCE, Scripted
from tests.support.apache import AUTHORIZER
from tests.support.patience import WITHIN_S
from tests.support.ports import refusing_port
from tests.support.preloaded import run
from tests.support.requests import acl
from tests.support.tenure import Tenure, tenure_command


def test_unreachable_server_ends_with_5_in_time() -> None:
    """The real command gives up in time, in one line, if nobody listens on the port."""
    with refusing_port() as port:
        address = f"127.0.0.1:{port}"
        done = run([*tenure_command(), "groups", "list", "--bootstrap-server", address, "--timeout", "0.5"])
    assert (done.returncode, done.stdout) == (5, "")
    assert done.stderr.startswith(f"tenure: {address}")
    assert done.stderr.count("\n") == 1


def on_a_terminal(bootstrap: str, *arguments: str, until: str = "") -> str:
    """What `tenure groups list` prints on a terminal, to its end or until a text."""
    ours, theirs = pty.openpty()
    command = [*tenure_command(), "groups", "list", "--bootstrap-server", bootstrap, *arguments]
    printed = ""
    try:
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=theirs) as process:
            os.close(theirs)
            with suppress(OSError):  # the command closed the terminal
                while (not until or until not in printed) and select.select([ours], [], [], WITHIN_S)[0]:
                    printed += os.read(ours, 1024).decode()
                process.kill()
    finally:
        os.close(ours)
    return printed


def test_on_a_terminal_a_wait_is_said_at_once() -> None:
    """While a server doesn't answer, a line says for what the command waits and how long."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        line = f"tenure: waiting for {address}, up to 3600 s"
        assert on_a_terminal(address, "--timeout", "3600", until=line) == line


def test_the_line_about_a_wait_is_gone_with_the_answer() -> None:
    """An answer erases the line, and so does the failure, which has a line of its own."""
    with Scripted({"ListGroups": [ListGroupsResponse()]}) as server:
        line = f"tenure: waiting for {server.bootstrap}, up to 5 s"
        erased = f"{line}\r{' ' * len(line)}\r"
        assert on_a_terminal(server.bootstrap) == erased
        server.answers("ListGroups", ListGroupsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
        refused = on_a_terminal(server.bootstrap)
        assert refused.startswith(f"{erased}tenure: list of groups on {server.bootstrap}: CLUSTER_AUTHORIZATION_FAILED")
        bootstrap = server.bootstrap
    said = "no server is there; start `tenure serve`, or name one with --bootstrap-server"
    assert on_a_terminal(bootstrap) == f"{erased}tenure: {bootstrap}: Connection refused: {said}\r\n"


def test_a_group_that_the_user_may_not_see_is_no_bare_error() -> None:
    """The line about one group names the user, the right and the page, as the line about a whole answer does."""
    answer = FindCoordinatorResponse(
        coordinators=[FindCoordinatorResponse.Coordinator(key="g", error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)]
    )
    with Scripted({"FindCoordinator": [answer]}) as server:
        ran = run_app(app, "describe", "g", "--bootstrap-server", server.bootstrap)
    assert ran.code == 4
    lacks = "User:ANONYMOUS lacks Describe on group 'g'; an ACL grants it (docs/secure/acls.md#allow-something)"
    assert ran.err == f"tenure: group 'g': GROUP_AUTHORIZATION_FAILED: {lacks}\n"


NO_COORDINATOR = ListGroupsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)


@pytest.mark.parametrize(
    ("answer", "code", "why"),
    [
        (ListGroupsResponse(), 0, ""),
        (
            ListGroupsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
            4,
            "CLUSTER_AUTHORIZATION_FAILED; an ACL grants it",
        ),
        (NO_COORDINATOR, 4, "COORDINATOR_NOT_AVAILABLE; `tenure doctor GROUP` finds out why"),
        (ListGroupsResponse(error_code=30_000), 4, "error 30000"),
        (SILENCE, 5, "did not answer in time"),
        (HANG_UP, 5, "closed the connection"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", 5, "does not speak Kafka's protocol"),
    ],
    ids=["answer", "refusal", "no coordinator", "refusal of tomorrow", "silence", "hang-up", "not Kafka"],
)
def test_each_failure_has_its_code_and_one_line(answer: object, code: int, why: str) -> None:
    """Each failure of a server has its exit code and its line."""
    with Scripted({"ListGroups": [answer]}) as server:
        where = ("list", "--bootstrap-server", server.bootstrap)
        if answer in (SILENCE, HANG_UP, NO_COORDINATOR):  # they are tried until the time is up
            ran, _ = run_out_of_time(app, 1, *where, until=lambda ran: why in ran.err)
        else:
            ran = run_app(app, *where, "--timeout", str(WITHIN_S))
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


SASL = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SERVER = f"""listener.name.sasl.sasl.enabled.mechanisms=PLAIN
listener.name.sasl.plain.sasl.jaas.config={SASL} user_alice="secret";
"""


def client_file(folder: Path, password: str, *lines: str) -> str:
    """The path of a file with which alice logs in."""
    file = folder / "client.properties"
    login = f'sasl.jaas.config={SASL} username="alice" password="{password}";'
    file.write_text("\n".join(("security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", login, *lines)))
    return str(file)


def test_a_command_logs_in(tmp_path: Path) -> None:
    """The right password is let in, and a wrong one is refused at once: another try would end alike."""
    with Tenure(listeners={"SASL": "SASL_PLAINTEXT"}, properties=SERVER) as server:
        where = ["list", "--bootstrap-server", server.bootstrap, "--timeout", "3600", "--command-config"]
        assert run_app(app, *where, client_file(tmp_path, "secret")).code == 0
        ran = run_app(app, *where, client_file(tmp_path, "wrong"))
    assert (ran.code, ran.out) == (4, "")
    assert ran.err.startswith(f"tenure: {server.bootstrap}: PLAIN: Authentication failed")
    assert ran.err.count("\n") == 1


EVENTS = "topic '__rebalance_events' (on Apache Kafka: on topic '__consumer_offsets')"
ABORT = "transactions abort --topic orders --partition 0 --start-offset 0"
WITHOUT_RIGHTS = {
    "groups describe g": "Describe on group 'g'",
    "groups wait g": "Describe on group 'g'",
    "groups delete g": "Describe on group 'g'",
    "groups settings g": "DescribeConfigs on group 'g'",
    "groups settings g --set target.group.size=2": "DescribeConfigs on group 'g'",
    "members remove --group g --instance-id a": "Describe on group 'g'",
    "migrate check g": "Describe on group 'g'",
    "users list": "Describe on the cluster",
    "users remove bob": "Alter on the cluster",
    "explain g": f"Read on {EVENTS}",
    "watch g": f"Read on {EVENTS}",
    "doctor g": f"Read on {EVENTS}",
    ABORT: "Describe on topic 'orders'",
}
"""By command, what a user without rights lacks."""
WITH_DESCRIBE = {
    "groups delete g": "Delete on group 'g'",
    "members remove --group g --instance-id a": "Read on group 'g'",
    "explain g": "Read on topic '__rebalance_events'",
    ABORT: "Read on topic 'orders'",
}
"""By command, what a user lacks who may describe everything."""


def allow_describe(bootstrap: str) -> None:
    """Let alice describe every group, every topic and the cluster."""
    resources = ((Kind.GROUP, "*"), (Kind.TOPIC, "*"), (Kind.CLUSTER, CLUSTER_NAME))
    creations = [acl(kind, name, Operation.DESCRIBE) for kind, name in resources]
    with Client(bootstrap, WITHIN_S) as client:
        client.request(CreateAclsRequest(creations=creations), at_least=1)


def test_a_missing_right_is_named(tmp_path: Path) -> None:
    """Each command names the user, the operation and the resource, and where an operator finds how to allow it."""
    properties = f"{SERVER}authorizer.class.name={AUTHORIZER}\nsuper.users=User:ANONYMOUS\n"
    listeners = {"OPEN": "PLAINTEXT", "SASL": "SASL_PLAINTEXT"}
    with Tenure({"tenure.topics": "orders:1"}, listeners=listeners, properties=properties) as server:
        login = ["--bootstrap-server", server.bootstrap_of("SASL")]
        login += ["--command-config", client_file(tmp_path, "secret")]

        def lacked(commands: Iterable[str]) -> dict[str, str]:
            found = {}
            for command in commands:
                ran = run_app(make_app(""), *command.split(), *login)
                assert (ran.code, ran.err.count("\n")) == (4, 1), (command, ran)
                before, _, after = ran.err.partition("_AUTHORIZATION_FAILED: User:alice lacks ")
                assert before.startswith("tenure: ")
                found[command] = after.removesuffix("; an ACL grants it (docs/secure/acls.md#allow-something)\n")
            return found

        assert lacked(WITHOUT_RIGHTS) == WITHOUT_RIGHTS
        allow_describe(server.bootstrap_of("OPEN"))
        assert lacked(WITH_DESCRIBE) == WITH_DESCRIBE


def test_a_wrong_file_is_one_line(tmp_path: Path) -> None:
    """The line names the file and the key; ignored keys are a warning."""
    file = client_file(tmp_path, "secret", "sasl.mechanism=KERBEROS", "acks=all")
    ran = run_app(app, "list", "--command-config", file)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"tenure: --command-config: {file}: sasl.mechanism: 'KERBEROS' is none of PLAIN")
    with Scripted({"ListGroups": [ListGroupsResponse()]}) as server:
        file = client_file(tmp_path, "secret", "security.protocol=PLAINTEXT", "acks=all")
        ran = run_app(app, "list", "--bootstrap-server", server.bootstrap, "--command-config", file)
    assert (ran.code, ran.err) == (0, f"tenure: {file}: not used here: acks\n")


def test_a_files_timeout_holds_unless_an_option_says_another(tmp_path: Path) -> None:
    """request.timeout.ms is how long the command tries."""
    file = client_file(tmp_path, "secret", "security.protocol=PLAINTEXT", "request.timeout.ms=100")
    with Scripted({"ListGroups": [SILENCE]}) as server:
        ran = run_app(app, "list", "--bootstrap-server", server.bootstrap, "--command-config", file)
    assert ran.code == 5
    assert "did not answer in time" in ran.err
