"""The images by themselves: their size, their content, their user and their configuration.

House rule: each container is removed when its test ends.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from tests.compose.project import BASE_IMAGE, Project, docker, image, image_size
from tests.support.tenure import READY_LINE, wait_until

pytestmark = pytest.mark.compose

SERVER = image("tenure")
ALL = pytest.mark.parametrize("name", [SERVER, image("tenure-client"), image("tenure-audit")])
SIZE_MAX = 120_000_000
READY_WITHIN_S = 30.0


@contextmanager
def server(environment: Mapping[str, str], volume: str | None = None, *options: str) -> Iterator[str]:
    """Yield the id of a ready container of the server image, with its data in that volume. options: of docker run."""
    settings = [part for name, value in environment.items() for part in ("--env", f"{name}={value}")]
    mounts = [] if volume is None else ["--volume", f"{volume}:/data"]
    container = docker("run", "--detach", *options, *settings, *mounts, SERVER).stdout.strip()
    try:
        wait_until(lambda: READY_LINE.search(docker("logs", container).stdout), "ready line", READY_WITHIN_S)
        yield container
    finally:
        docker("rm", "--force", "--volumes", container, check=False)


def test_the_server_image_is_small(images: Project) -> None:
    """The server's image is less than 120 MB larger than its base."""
    assert image_size(SERVER) - image_size(BASE_IMAGE) < SIZE_MAX


@ALL
def test_no_image_can_compile(images: Project, name: str) -> None:
    """No image has a compiler, make, or a pip for its packages."""
    look = "command -v cc gcc c++ clang make; ls /tenure/bin/pip; true"
    assert docker("run", "--rm", "--entrypoint", "sh", name, "-c", look).stdout == ""


@ALL
def test_no_image_runs_as_root(images: Project, name: str) -> None:
    """A process in an image has an ordinary user id, and can't change the program."""
    look = "id -u; id -g; test -w /tenure && echo writable; true"
    assert docker("run", "--rm", "--entrypoint", "sh", name, "-c", look).stdout == "1000\n1000\n"


def test_an_environment_for_kafka_starts_it(images: Project) -> None:
    """The server starts with the environment of Kafka's own image, a controller's listener too, and is healthy."""
    kafka = {
        "KAFKA_NODE_ID": "7",
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_LISTENERS": "PLAINTEXT://:19092,CONTROLLER://:9093",
        "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:19092",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "7@localhost:9093",
        "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
        "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
        "KAFKA_NUM_PARTITIONS": "3",
    }
    with server(kafka) as container:
        assert "ready listen=[::]:19092 node=7 data=/data" in docker("logs", container).stdout
        docker("exec", container, "tenure", "groups", "list", "--bootstrap-server", "localhost:19092")
        docker("exec", container, "python", "/tenure/health.py")


def test_tenure_names_win(images: Project) -> None:
    """A setting under TENURE_ has priority over the same one under KAFKA_, also over the image's own."""
    both = {"KAFKA_NODE_ID": "7", "TENURE_NODE_ID": "8", "TENURE_LISTENERS": "PLAINTEXT://:9192"}
    with server(both) as container:
        assert "ready listen=[::]:9192 node=8 data=/data" in docker("logs", container).stdout


def test_an_environment_for_tests_opens_the_control(images: Project) -> None:
    """Two variables open the control, which asks for the token; a reset empties the volume that it made."""
    address = {"TENURE_CONTROL": ":8081", "TENURE_CONTROL_TOKEN": "not-a-secret"}
    ask = (
        "import sys, urllib.request as r; "
        "print(r.urlopen(r.Request('http://localhost:8081' + sys.argv[1], method=sys.argv[2], "
        "headers={'Authorization': 'Bearer ' + sys.argv[3]})).read().decode())"
    )
    with server(address) as container:
        assert " control=[::]:8081 data=/data" in docker("logs", container).stdout
        told = docker("exec", container, "python", "-c", ask, "/v1", "GET", "not-a-secret").stdout
        assert json.loads(told)["data_dir"] == "/data"
        docker("exec", container, "python", "-c", ask, "/v1/reset", "POST", "not-a-secret")
        refused = docker("exec", container, "python", "-c", ask, "/v1", "GET", "another", check=False)
        assert "HTTP Error 401" in refused.stderr
    done = docker("run", "--rm", "--env", "TENURE_CONTROL=:8081", SERVER, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "set tenure.control.token" in done.stderr


HARD = ("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")


def test_the_root_may_be_read_only(images: Project) -> None:
    """The server needs no file but those in /data, which it keeps to itself, and no capability."""
    with server({"TENURE_TOPICS": "orders:1"}, None, *HARD) as container:
        docker("exec", container, "tenure", "groups", "list")
        docker("exec", container, "python", "/tenure/health.py")
        found = docker("exec", container, "find", "/data", "-perm", "/077").stdout
        assert found == ""
        assert "data_folder_open" not in docker("logs", container).stderr


def test_http_in_a_container_needs_a_token(images: Project) -> None:
    """A container's address is not of the loopback: one line says what is missing."""
    done = docker("run", "--rm", "--env", "TENURE_HTTP=:8080", SERVER, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "set tenure.http.token" in done.stderr
    with server({"TENURE_HTTP": ":8080", "TENURE_HTTP_TOKEN": "not-a-secret"}) as container:
        ask = (
            "import sys, urllib.request as r; "
            "print(r.urlopen(r.Request('http://localhost:8080/groups', headers=dict([sys.argv[1:]]))).read().decode())"
        )
        authorized = docker("exec", container, "python", "-c", ask, "Authorization", "Bearer not-a-secret")
        assert authorized.stdout == "[]\n"
        refused = docker("exec", container, "python", "-c", ask, "Authorization", "Bearer another", check=False)
        assert "HTTP Error 401" in refused.stderr


def test_the_health_check_says_when_nobody_answers(images: Project) -> None:
    """Without a server the health check fails with one line."""
    done = docker("run", "--rm", "--entrypoint", "python", SERVER, "/tenure/health.py", check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "127.0.0.1:9092" in done.stderr


def test_sigterm_ends_it_in_order(images: Project) -> None:
    """The server is its container's first process, receives SIGTERM, and exits with 0."""
    with server({}) as container:
        docker("stop", "--time", "20", container)
        assert docker("inspect", "--format", "{{.State.ExitCode}}", container).stdout.strip() == "0"


def test_data_outlives_the_container(images: Project) -> None:
    """The next container finds the volume's data, here a topic, and may write to it."""
    volume = docker("volume", "create").stdout.strip()
    try:
        with server({"TENURE_TOPICS": "orders:3"}, volume=volume):
            pass
        with server({"TENURE_TOPICS": "payments:1"}, volume=volume) as container:
            kept = docker("exec", container, "cat", "/data/topics.json").stdout
            assert "orders" in kept
            assert "payments" in kept
    finally:
        docker("volume", "rm", volume, check=False)
