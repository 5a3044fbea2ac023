"""Builds the images, and runs the story of each compose file once for all tests.

The images have a tag of their own and stay for the next run; containers, volumes and network are removed.

House rule: one line says what is missing for a run.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.compose.project import (
    BASE_IMAGE,
    ClusterStory,
    Project,
    Story,
    audit,
    docker,
    image,
    image_size,
    live_through,
    live_through_cluster,
)

SIZES: list[str] = []
"""Lines about the images, for the end of the run."""


@pytest.fixture(scope="session")
def engine() -> None:
    """Require a Docker engine that answers."""
    try:
        answer = docker("info", check=False)
    except FileNotFoundError:
        pytest.fail("tests/compose needs Docker, and there is no docker command", pytrace=False)
    if answer.returncode != 0:
        pytest.fail(f"tests/compose needs a Docker engine: {answer.stderr.strip()}", pytrace=False)


@pytest.fixture(scope="session")
def project(engine: None) -> Project:
    """Build the images of all services; the audit's builds in the background, as it is slow and needed last."""
    project = Project()
    for service in ("coordinator", "producer"):
        project.build(service)
    project.begin_to_build("audit")
    return project


@pytest.fixture(scope="session")
def images(project: Project) -> Project:
    """Wait until all images are built."""
    project.wait_until_built()
    base = image_size(BASE_IMAGE)
    SIZES.append(f"{BASE_IMAGE}: {base / 1e6:.0f} MB")
    for name in map(image, ("tenure", "tenure-client", "tenure-audit")):
        SIZES.append(f"{name}: {(image_size(name) - base) / 1e6:.0f} MB over it")
    return project


@pytest.fixture(scope="session")
def story(project: Project) -> Iterator[Story]:
    """Yield the story: up, chaos, audit, down."""
    try:
        project.compose("up", "--detach")
        yield audit(live_through(project))
    finally:
        project.compose("down", "--volumes", "--timeout", "2", "--remove-orphans", check=False)


@pytest.fixture(scope="session")
def secure_story(project: Project) -> Iterator[Story]:
    """Yield the story with TLS, users and ACLs: up, chaos, down. The images are those of `project`."""
    secure = Project("secure")
    try:
        secure.compose("up", "--detach")
        yield live_through(secure)
    finally:
        secure.compose("down", "--volumes", "--timeout", "2", "--remove-orphans", check=False)


@pytest.fixture(scope="session")
def cluster_story(project: Project) -> Iterator[ClusterStory]:
    """Yield the story of three nodes on etcd: up, chaos, down. All images but etcd's are those of `project`."""
    cluster = Project("cluster")
    try:
        cluster.build("etcd-1")
        cluster.compose("up", "--detach")
        yield live_through_cluster(cluster)
    finally:
        cluster.compose("down", "--volumes", "--timeout", "2", "--remove-orphans", check=False)


@pytest.fixture(params=["story", "secure_story"])
def each_story(request: pytest.FixtureRequest) -> Story:
    """Return each of the stories in turn."""
    lived = request.getfixturevalue(request.param)
    assert isinstance(lived, Story)
    return lived


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the sizes of the images."""
    if not SIZES:
        return
    terminalreporter.write_sep("=", "images")
    for line in SIZES:
        terminalreporter.write_line(line)
