"""Causes as values: the meaning of a client's text, the source of a cause, and its words."""

from __future__ import annotations

import pytest

from coordinator.client.groups import LEAVE_REASON
from coordinator.group.causes import (
    ECHOES,
    MEANINGS,
    NO_REQUEST,
    Cause,
    CauseKind,
    Origin,
    meaning_of,
    reason_of,
)


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


@pytest.mark.parametrize("kind", CauseKind)
def test_every_cause_has_words_and_names_its_member(kind: CauseKind) -> None:
    """A cause that came with a request also says that the client gave no reason."""
    words = reason_of(Cause(kind, ("m-1",), api_version=5))
    assert words.endswith("client reason: not provided") is (kind is not CauseKind.MEMBER_REMOVED)
    assert "m-1" in words or kind in {
        CauseKind.GROUP_OVER_CAPACITY,
        CauseKind.TARGET_SIZE_CHANGED,
        CauseKind.TOPICS_CHANGED,
        CauseKind.REGEX_RESOLVED,
        CauseKind.TARGET_INCOMPLETE,
    }
    assert "client reason" not in reason_of(Cause(kind, ("m-1",)))


def test_the_reason_of_a_removal_is_the_operators() -> None:
    """The text that tools send for operators who give no reason counts as none (KIP-800)."""

    def said(reason: str) -> str:
        return reason_of(Cause(CauseKind.MEMBER_REMOVED, ("m",), reason=reason, api_version=5))

    for nothing in ("", LEAVE_REASON, "member was removed by an admin"):
        assert said(nothing) == "member m is removed by an operator"
    assert said("host is gone") == "member m is removed by an operator, who says: host is gone"


def test_the_clients_reason_stands_beside_ours() -> None:
    """The line has KIP-800's text and the name of KIP-423's number, or the number if it is unknown."""
    said = reason_of(Cause(CauseKind.MEMBER_REJOINED, ("m",), reason="rolling", join_reason=0, api_version=9))
    assert said.endswith("client reason: rolling, restart")
    assert reason_of(Cause(CauseKind.MEMBER_REJOINED, ("m",), join_reason=9, api_version=9)).endswith("number 9")
