"""Causes as values: the meaning of a client's text, and the source of a cause."""

from __future__ import annotations

import pytest

from coordinator.group.causes import ECHOES, MEANINGS, NO_REQUEST, Cause, CauseKind, Origin, meaning_of


@pytest.mark.parametrize("start", MEANINGS)
def test_known_words_have_a_meaning_whatever_follows(start: str) -> None:
    """Kafka's Java client appends details to a known text. Another text, or none, has no certain meaning."""
    assert meaning_of(f"{start} for topics [orders]") is MEANINGS[start]
    assert meaning_of(f"perhaps {start}") is None
    assert meaning_of("") is None


def test_a_cause_says_whose_word_it_is() -> None:
    """The source is the client if it sent a text or a number, else the coordinator."""
    cause = Cause(CauseKind.MEMBER_LEFT, ("m",))
    assert cause.source is Origin.INFERRED
    assert cause._replace(reason="done").source is Origin.CLIENT
    assert cause._replace(join_reason=0).source is Origin.CLIENT
    assert None not in ECHOES


def test_each_cause_by_a_request_has_its_request() -> None:
    """The others come from a timer or a load."""
    assert {kind.value for kind in CauseKind if kind.words.request == NO_REQUEST} == {
        "member_expired",
        "sync_timed_out",
        "group_over_capacity",
        "target_size_changed",
        "regex_resolved",
        "revocation_timed_out",
    }
