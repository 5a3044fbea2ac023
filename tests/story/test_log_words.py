"""The text of log lines: Kafka's words, and each cause with its member."""

from __future__ import annotations

import pytest

from coordinator.client.groups import LEAVE_REASON
from coordinator.group import notes
from coordinator.group.causes import Cause, CauseKind
from coordinator.story.log_words import reason_of, text_of
from tests.server.telemetry.test_note_lines import ENDED, EVENTS


@pytest.mark.parametrize(
    "name, words",
    [
        (
            "rebalance_started",
            (
                "Preparing to rebalance group g in state PreparingRebalance with old generation 3 "
                "(__consumer_offsets-12) (reason: "
            ),
        ),
        (
            "rebalance_ended",
            (
                "Rebalance of group g from generation 3 (__consumer_offsets-12) is over: every member has its "
                "assignment; waited longest for m-1 to join, 20 ms"
            ),
        ),
        ("generation_started", "Stabilized group g generation 4 (__consumer_offsets-12) with 2 members"),
        (
            "rebalance_completed",
            (
                "Assignment received from leader m-1 for group g for generation 4. The group has 2 members, 1 of "
                "which are static."
            ),
        ),
        ("group_converted", "Converted group g to a consumer group in generation 5 with 3 members"),
        ("group_emptied", "Group g with generation 5 is now empty (__consumer_offsets-12)"),
        ("member_expired", "in group g has been removed after session timeout expiration"),
        ("pending_expired", "Pending member m-1 in group g has been removed after session timeout expiration."),
        (
            "member_replaced",
            (
                "Static member with groupInstanceId=i-1 and unknown member id joins group g in Stable state. Replacing "
                "previously mapped member m-1 with"
            ),
        ),
        (
            "member_fenced",
            (
                "Request memberId=m-1 for static member with groupInstanceId=i-1 is fenced by current memberId=m-2 "
                "during operation heartbeat"
            ),
        ),
        ("member_left", "Member m-1 has left group g through explicit `LeaveGroup`; client reason: done"),
        (
            "target_assigned",
            "[GroupId g] Computed a new target assignment for epoch 5 with 'uniform' assignor: 2 members, 3 topic",
        ),
        ("member_revoking", "Member m-1 with groupInstanceId=i-1 is asked to give up 3 topic partitions"),
        ("member_away", "Static member m-1 with instance id i-1 temporarily left the group"),
        (
            "instance_id_unreleased",
            (
                "Static member m-2 with instance id i-1 cannot join the group because the instance id is owned by "
                "member m-1 (c, /h; the owner is d, /i, heard of 700 ms ago)"
            ),
        ),
        (
            "client_refused",
            (
                "Group g refuses member m-1 with groupInstanceId=i-1 with GROUP_MAX_SIZE_REACHED: the group is full, "
                "until a member is gone (client c, /h)"
            ),
        ),
        ("hold_ended", "Group g lets 3 held members in: no expected member is missing"),
        ("rebalance_stuck", "Group g could not complete rebalance because no members rejoined"),
    ],
)
def test_lines_keep_the_words_that_people_grep_for(name: str, words: str) -> None:
    """People and scripts search for Kafka's wording."""
    assert words in text_of(EVENTS[name], 12)


def test_a_rebalance_of_the_consumer_protocol_ends_from_an_epoch() -> None:
    """Such a group has no generations."""
    fields = dict(zip(ENDED.FIELDS, ENDED, strict=True)) | {"group_type": notes.CONSUMER}
    text = text_of(notes.RebalanceEnded(**fields), 12)
    assert text.startswith("Rebalance of group g from epoch 3 (__consumer_offsets-12) is over: ")


def test_a_fenced_request_without_a_member_id_has_no_empty_name() -> None:
    """The line says that the id is missing."""
    note = notes.MemberFenced("g", 1, "", "m-2", "i-1", "heartbeat")
    assert text_of(note, 12).startswith("Request without a member id for static member with groupInstanceId=i-1 is ")


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


def test_the_two_ways_of_a_note_have_their_own_words() -> None:
    """Lines differ for deleted and expired, left and lapsed, static and dynamic."""
    pairs: list[tuple[notes.Note, notes.Note]] = [
        (notes.GroupDeleted("g", 1, 0), notes.GroupDeleted("g", 1, 0, expired=True)),
        (notes.PendingExpired("g", 1, "m"), notes.PendingExpired("g", 1, "m", left=True)),
        (notes.MemberJoined("g", 1, "m", None, "c", "/h"), notes.MemberJoined("g", 1, "m", "i", "c", "/h")),
    ]
    for one, other in pairs:
        assert text_of(one, 1) != text_of(other, 1)
