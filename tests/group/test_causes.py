"""Causes as values: what a client's words mean, and who says so."""

from __future__ import annotations

import pytest

from coordinator.group.causes import ECHOES, MEANINGS, Cause, CauseKind, Source, meaning_of


@pytest.mark.parametrize("start", MEANINGS)
def test_known_words_have_a_meaning_whatever_follows(start: str) -> None:
    """Kafka's Java client appends details; other words, and none, mean nothing that is certain."""
    assert meaning_of(f"{start} for topics [orders]") is MEANINGS[start]
    assert meaning_of(f"perhaps {start}") is None
    assert meaning_of("") is None


def test_a_cause_says_whose_word_it_is() -> None:
    """The client's if it gave words or a number, the coordinator's otherwise."""
    cause = Cause(CauseKind.MEMBER_LEFT, ("m",))
    assert cause.source is Source.INFERRED
    assert cause._replace(reason="done").source is Source.CLIENT
    assert cause._replace(join_reason=0).source is Source.CLIENT
    assert None not in ECHOES
