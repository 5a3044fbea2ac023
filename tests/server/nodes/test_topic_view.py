"""The search for topics that a regular expression matches."""

from __future__ import annotations

import pytest

from coordinator.server.nodes.topic_view import REGEX_MAX, match, problem


@pytest.mark.parametrize("regex", ["a{1", r"\Qabc", "]", "t.*", "(?i)orders", "x" * REGEX_MAX])
def test_these_can_be_read(regex: str) -> None:
    """Whatever RE2 reads."""
    assert problem(regex) is None


@pytest.mark.parametrize("regex", ["(", "(?=a)", r"(a)\1", "a++", r"a\Z", "a{1001}", "x" * (REGEX_MAX + 1)])
def test_these_can_not(regex: str) -> None:
    """Lookaround, backreferences, possessive quantifiers and more than RE2 or we allow."""
    assert problem(regex)


def test_a_whole_name_matches() -> None:
    """As in Kafka, a part of a name is not enough; an expression that can't be read matches nothing."""
    found = match(["t", "t.*", "("], ["t", "t1", "at"])
    assert found == {"t": ["t"], "t.*": ["t", "t1"], "(": []}
