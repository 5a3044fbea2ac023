"""What all suites share: how long Hypothesis looks, how tests are named, and a browser where one is installed.

Four profiles, chosen by HYPOTHESIS_PROFILE: `ci` (the default: bounded and repeatable, for every run), `dev` (a new
seed each run, for the desk), `nightly` (long) and `fuzz` (longer, for one test). None has a deadline: a slow machine is
no finding.

House rule: a fixture stands in its suite's own conftest.py unless two suites need it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.support.browser import Browser, find_browser

settings.register_profile("ci", deadline=None, max_examples=100, derandomize=True, print_blob=True)
settings.register_profile("dev", deadline=None, max_examples=100, print_blob=True)
settings.register_profile(
    "nightly",
    deadline=None,
    max_examples=10_000,
    stateful_step_count=200,
    print_blob=True,
    # No explaining: it multiplies the time of a failure, and the shrunk example is enough.
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.target, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("fuzz", settings.get_profile("nightly"), max_examples=50_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes are named by their argument and a number.

    Spelled out they are long, and those that a compressor stamped with the time differ from process to process, which
    pytest-xdist refuses.
    """
    return argname if isinstance(val, bytes) else None


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A headless Chromium."""
    if find_browser() is None:
        pytest.skip("no Chromium is installed (Debian: apt-get install chromium)")
    with Browser() as made:
        yield made
