"""The images, and what docker/docker-compose.yml lives through with them, once for all tests.

The images are built as anybody builds them, under a tag of their own, and stay for the next run; containers, volumes
and network go.

House rule: what is missing for a run is said in a line.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.compose.project import BASE_IMAGE, Project, Story, docker, image, image_size, live_through

SIZES: list[str] = []
"""Lines about the images, for the end of the run."""


@pytest.fixture(scope="session")
def engine() -> None:
    """A Docker engine answers."""
    try:
        answer = docker("info", check=False)
    except FileNotFoundError:
        pytest.fail("tests/compose needs Docker, and there is no docker command", pytrace=False)
    if answer.returncode != 0:
        pytest.fail(f"tests/compose needs a Docker engine: {answer.stderr.strip()}", pytrace=False)


@pytest.fixture(scope="session")
def project(engine: None) -> Project:
    """The images of all services but the audit's, which is under way: it takes longest, and is needed last."""
    project = Project()
    for service in ("coordinator", "producer"):
        project.build(service)
    project.begin_to_build("audit")
    return project


@pytest.fixture(scope="session")
def images(project: Project) -> Project:
    """All images are built."""
    project.wait_until_built()
    base = image_size(BASE_IMAGE)
    SIZES.append(f"{BASE_IMAGE}: {base / 1e6:.0f} MB")
    for name in map(image, ("tenure", "tenure-client", "tenure-audit")):
        SIZES.append(f"{name}: {(image_size(name) - base) / 1e6:.0f} MB over it")
    return project


@pytest.fixture(scope="session")
def story(project: Project) -> Iterator[Story]:
    """Up, chaos, audit, down."""
    try:
        project.compose("up", "--detach")
        yield live_through(project)
    finally:
        project.compose("down", "--volumes", "--timeout", "2", "--remove-orphans", check=False)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How large the images are."""
    if not SIZES:
        return
    terminalreporter.write_sep("=", "images")
    for line in SIZES:
        terminalreporter.write_line(line)
