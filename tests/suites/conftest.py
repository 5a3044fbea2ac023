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

from tests.suites.outcomes import ServerUnderTest
from tests.support.apache import ApacheKafka, available
from tests.support.tenure import Tenure


@pytest.fixture(params=["tenure", pytest.param("apache", marks=pytest.mark.oracle)])
def server(request: pytest.FixtureRequest) -> Iterator[ServerUnderTest]:
    """Yield the server under test; the suite starts it with its settings, and it ends with the test."""
    with ExitStack() as stack:
        if request.param == "tenure":
            yield ServerUnderTest("tenure", lambda settings: stack.enter_context(Tenure(settings)).bootstrap)
        elif (reason := available()) is not None:
            pytest.skip(reason)
        else:
            yield ServerUnderTest("apache", lambda settings: stack.enter_context(ApacheKafka(settings)).bootstrap)


@pytest.fixture
def need() -> Callable[..., None]:
    """Return a function that leaves the test out, with a line, if one of these programs isn't installed."""

    def check(*programs: str) -> None:
        if missing := [program for program in programs if shutil.which(program) is None]:
            pytest.skip(f"needs {', '.join(missing)}: not found here")

    return check


@pytest.fixture
def aiokafka_checkout() -> Path:
    """Return the folder that AIOKAFKA_TESTS names; without it the test is left out, with a line."""
    if "AIOKAFKA_TESTS" not in os.environ:
        pytest.skip("needs AIOKAFKA_TESTS=FOLDER, a checkout of aiokafka: no package of it contains its tests")
    return Path(os.environ["AIOKAFKA_TESTS"])
