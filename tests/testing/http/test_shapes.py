"""Values as JSON: a fault that fields describe is the fault that its text describes."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.server.faults.plan import parse
from coordinator.testing.http.shapes import fault_json, fault_of


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"action": "drop-response", "apis": ["Fetch"], "client_id": "w"}, "Fetch client_id=w -> drop-response"),
        ({"action": "error", "error": "NOT_COORDINATOR", "group": "g"}, "* group=g -> error NOT_COORDINATOR"),
        ({"action": "delay", "delay_ms": 500, "apis": ["JoinGroup", "SyncGroup"]}, "JoinGroup,SyncGroup -> delay 500"),
        ({"action": "blackhole", "client_id": "w", "always": True}, "* client_id=w times=* -> blackhole"),
        ({"action": "kill", "nth": 2, "times": 3, "version": 5}, "* version=5 nth=2 times=3 -> kill"),
        ({"action": "disconnect", "member_id": "m", "instance_id": "i"}, "* member_id=m instance_id=i -> disconnect"),
        ({"action": "loading", "always": False}, "* -> loading"),
    ],
)  # fmt: skip
def test_a_fault_of_fields_is_the_fault_of_its_text(fields: dict[str, Any], text: str) -> None:
    """Both ways describe the same fault."""
    (expected,) = parse(text)
    fault = fault_of(fields)
    assert str(fault) == str(expected) == text
    assert fault_json(7, fault) == {"id": 7, "text": text, "seen": 0, "fired": 0}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"group": "g"}, "a fault has an 'action'"),
        ({"action": "error"}, "the field 'error' belongs to the action 'error', and to it alone"),
        ({"action": "delay"}, "the field 'delay_ms' belongs to the action 'delay'"),
        ({"action": "loading", "error": "NOT_COORDINATOR"}, "the field 'error' belongs"),
        ({"action": "error", "error": "OOPS"}, "there is no error 'OOPS'"),
        ({"action": "kill", "apis": ["Joingroup"]}, "there is no API Joingroup"),
    ],
)
def test_a_fault_that_can_not_be_is_refused(fields: dict[str, Any], words: str) -> None:
    """The error says what is wrong."""
    with pytest.raises(ValueError, match=f"^{words}"):
        fault_of(fields)
