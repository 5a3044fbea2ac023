"""Shared by all suites: Hypothesis profiles, names of parametrized tests, and a browser if one is installed.

HYPOTHESIS_PROFILE chooses a profile. `short` is the default, and `long` that of `make test-long`: bounded and
repeatable. `dev` takes a new seed for each run. `nightly` runs long, and `fuzz` longer, for one test. No profile has a
deadline, because a slow machine is no finding.

House rule: a fixture is in its suite's own conftest.py unless two suites need it.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, is_hypothesis_test, seed, settings

from tests.support import prometheus
from tests.support.at_once import before_collection, pytest_addoption, pytest_runtestloop  # noqa: F401 - hooks
from tests.support.browser import MISSING as NO_BROWSER
from tests.support.browser import Browser, find_browser
from tests.support.etcd import MISSING, Etcd, program
from tests.support.length import PROFILE
from tests.support.patience import WITHIN_S

if TYPE_CHECKING:
    from tests.support.certificates import Certificates

PATH = os.pathsep.join([str(Path(sys.executable).parent), *os.get_exec_path()])
"""With the programs of `.venv`, such as mkdocs, which only `make docs` installs."""

settings.register_profile("short", deadline=None, max_examples=15, derandomize=True, print_blob=True)
settings.register_profile("long", settings.get_profile("short"), max_examples=45)
settings.register_profile("dev", deadline=None, max_examples=100, print_blob=True)
settings.register_profile(
    "nightly",
    deadline=None,
    max_examples=3_000,
    stateful_step_count=200,
    print_blob=True,
    # Without Phase.explain: it multiplies the time of a failure, and the shrunk example is enough.
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.target, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("fuzz", settings.get_profile("nightly"), max_examples=50_000)
settings.load_profile(PROFILE)

# A shell that starts the tests in the background lets them ignore SIGINT, and every program that they start as well.
# Python handles the signal only if nobody ignores it, so Ctrl-C could not be tested.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Keep Python's garbage collector from modules and tests: they stay to the end, and are millions of objects.

    A look at all of them takes a fifth of a second. Tests of reference cycles, and pytest itself, ask for many. Without
    a request Python looks after 700 new objects; after 10,000 it takes a twentieth less of the CPU of random tests.
    """
    before_collection(session)
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(10_000)
        gc.enable()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Give random tests that repeat their examples a seed. Without one, Hypothesis parses each test's source for it."""
    if isinstance(item, pytest.Function) and settings().derandomize and is_hypothesis_test(item.function):
        seed(0)(item.function)


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name bytes by their argument and a number.

    Written out, bytes are long. Compressed bytes can contain the time: the test would have another name in each run.
    """
    return argname if isinstance(val, bytes) else None


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave out a test whose programs aren't here, with a line that names them.

    A user without Go or Node still tests all else. `make test` fetches etcd, Prometheus and Chromium by apt-get.
    """
    for marker in item.iter_markers("programs"):
        if absent := [program for program in marker.args if shutil.which(program, path=PATH) is None]:
            pytest.skip(f"needs {' and '.join(absent)}, not found here")
    if item.get_closest_marker("etcd") is not None and program() is None:
        pytest.skip(MISSING)
    if item.get_closest_marker("prometheus") is not None and prometheus.program() is None:
        pytest.skip(prometheus.MISSING)  # as a package of Debian, it isn't on every developer's machine


@pytest.fixture(autouse=True, scope="session")
def a_slow_disk_is_waited_for() -> Iterator[None]:
    """A server in the tests' own process takes no slow disk for one that hangs: it would leave, and take them along."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("coordinator.server.app.STOP_WITHIN_S", WITHIN_S)
        patch.setattr("coordinator.server.app.CLOSE_WITHIN_S", WITHIN_S)
        yield


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """The files of `make_certificates`, made once. No test changes them."""
    from tests.support.certificates import make_certificates  # noqa: PLC0415 - few tests need it

    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def etcd() -> Iterator[Etcd]:
    """Yield an etcd of one member. A test has a cluster of its own in it, and thaws the member that it froze."""
    with Etcd() as running:
        yield running


def started_browser() -> Iterator[Browser]:
    """Yield a headless Chromium; a test is left out with a line where there is none."""
    if find_browser() is None:
        pytest.skip(NO_BROWSER)  # `make test` fetches it where there is apt-get; a browser is much to ask for elsewhere
    with Browser() as made:
        made.resize(1280, 900)  # which test comes first in a process doesn't matter
        yield made


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Yield a browser that the tests of a module share."""
    yield from started_browser()


@pytest.fixture
def own_browser() -> Iterator[Browser]:
    """Yield a browser that knows no password of another test."""
    yield from started_browser()
