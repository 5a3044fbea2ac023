"""What all suites share: how long Hypothesis looks.

Three profiles, chosen by HYPOTHESIS_PROFILE: `ci` (the default: bounded and repeatable, for every run), `dev` (a new
seed each run, for the desk) and `nightly` (long). None has a deadline: a slow machine is no finding.

House rule: a fixture stands in its suite's own conftest.py unless two suites need it.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

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
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
