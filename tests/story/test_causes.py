"""Causes of rebalances: each kind has its words."""

from __future__ import annotations

import pytest

from coordinator.group.causes import CauseKind
from coordinator.story.causes import CAUSES, NO_REQUEST
from coordinator.story.words import cause_text
from tests.support.told import cause, cause_of


def test_each_cause_by_a_request_has_its_request() -> None:
    """The others come from a timer or a load."""
    assert {kind.value for kind, words in CAUSES.items() if words.request == NO_REQUEST} == {
        "member_expired",
        "sync_timed_out",
        "group_over_capacity",
        "target_size_changed",
        "regex_resolved",
        "revocation_timed_out",
    }


@pytest.mark.parametrize("kind", CauseKind)
def test_each_kind_has_words_where_it_is_one_of_several(kind: CauseKind) -> None:
    """A log that allows several kinds of causes is told in words, whichever they are."""
    assert cause_text(cause_of(cause("unknown", possible=[kind.value, "member_joined"]))).startswith("unknown: ")


def test_seats_that_changed_name_their_setting() -> None:
    """An operator finds what to look at."""
    assert cause_text(cause_of(cause("target_size_changed"))).startswith("target.group.size changed")
