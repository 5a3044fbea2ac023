"""A server of its own for each suite: Tenure, or Apache Kafka as the measure.

`make test-suites` runs the suites on Tenure, `make test-suites ARGS='-m "suites and oracle"'` on Apache Kafka.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from coordinator import testing
from tests.suites.outcomes import ServerUnderTest
from tests.support.apache import ApacheKafka, available
from tests.support.tenure import Tenure

SERVERS = ["tenure", pytest.param("apache", marks=pytest.mark.oracle)]


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[ServerUnderTest]:
    """Yield the server under test; the suite starts it with its settings, and it ends with the test."""
    with ExitStack() as stack:
        if request.param == "tenure":
            yield ServerUnderTest("tenure", lambda settings: stack.enter_context(Tenure(settings)).bootstrap)
        else:
            yield _apache(stack)


@pytest.fixture(params=SERVERS)
def kit_server(
    request: pytest.FixtureRequest, tenure_factory: Callable[..., testing.Tenure]
) -> Iterator[ServerUnderTest]:
    """Yield the server under test; Tenure is then the one of the test kit's fixture, in the process of the tests."""
    with ExitStack() as stack:
        if request.param == "tenure":
            yield ServerUnderTest("tenure", lambda settings: tenure_factory(settings=settings).bootstrap_servers)
        else:
            yield _apache(stack)


def _apache(stack: ExitStack) -> ServerUnderTest:
    if (reason := available()) is not None:
        pytest.skip(reason)
    return ServerUnderTest("apache", lambda settings: stack.enter_context(ApacheKafka(settings)).bootstrap)


@pytest.fixture
def need() -> Callable[..., None]:
    """Return a function that leaves the test out, with a line, if one of these programs isn't installed."""

    def check(*programs: str) -> None:
        if missing := [program for program in programs if shutil.which(program) is None]:
            pytest.skip(f"needs {', '.join(missing)}: not found here")

    return check


@pytest.fixture
def checkout() -> Callable[[str], Path]:
    """Return a function that gives the checkout of a project, which PROJECT_TESTS names.

    Without that variable it leaves the test out, with a line.
    """

    def find(project: str) -> Path:
        variable = f"{project.upper()}_TESTS"
        if variable not in os.environ:
            pytest.skip(f"needs {variable}=FOLDER, a checkout of {project}: no package of it contains its tests")
        return Path(os.environ[variable])

    return find
