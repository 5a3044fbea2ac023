"""Builds the images, and runs the story of each compose file once for all tests, all of them at the same time.

The images have a tag of their own and stay for the next run; containers, volumes and network are removed.

House rule: one line says what is missing for a run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

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
    project = Project("plain")
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
def stories(request: pytest.FixtureRequest, project: Project) -> Iterator[Mapping[str, Future[object]]]:
    """Yield the stories that the tests of this run need; all begin at once, because they wait most of the time."""
    needed = {name for item in request.session.items for name in getattr(item, "fixturenames", ())}
    kinds = [kind for kind, fixtures in NEEDED_BY.items() if fixtures & needed]
    projects = {kind: Project(kind) for kind in kinds}
    with ThreadPoolExecutor(len(TELL)) as pool:
        try:
            yield {kind: pool.submit(TELL[kind], each) for kind, each in projects.items()}
        finally:
            for each in projects.values():
                pool.submit(each.compose, "down", "--volumes", "--timeout", "2", "--remove-orphans", check=False)


def tell(project: Project) -> Story:
    """The story of one server: up, chaos, and an audit of its log."""
    project.compose("up", "--detach")
    return audit(live_through(project))


def tell_secure(project: Project) -> Story:
    """The story with TLS, users and ACLs: up, chaos."""
    project.compose("up", "--detach")
    return live_through(project)


def tell_cluster(project: Project) -> ClusterStory:
    """The story of three nodes on etcd: up, chaos. All images but etcd's are there."""
    project.build("etcd-1")
    project.compose("up", "--detach")
    return live_through_cluster(project)


TELL: Mapping[str, Callable[[Project], object]] = {"plain": tell, "secure": tell_secure, "cluster": tell_cluster}
NEEDED_BY: Mapping[str, set[str]] = {
    "plain": {"story", "each_story"},
    "secure": {"secure_story", "each_story"},
    "cluster": {"cluster_story"},
}


@pytest.fixture(scope="session")
def story(stories: Mapping[str, Future[Story]]) -> Story:
    """Return the story of one server."""
    return stories["plain"].result()


@pytest.fixture(scope="session")
def secure_story(stories: Mapping[str, Future[Story]]) -> Story:
    """Return the story with TLS, users and ACLs."""
    return stories["secure"].result()


@pytest.fixture(scope="session")
def cluster_story(stories: Mapping[str, Future[ClusterStory]]) -> ClusterStory:
    """Return the story of three nodes on etcd."""
    return stories["cluster"].result()


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
