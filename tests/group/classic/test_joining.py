"""How the rules read a JoinGroup."""

from __future__ import annotations

from coordinator.group.classic.joining import protocols_of, rebalance_timeout_of
from coordinator.group.client import NOBODY
from coordinator.group.events import JoinGroup
from protocol.messages import JoinGroupRequest


def test_version_0_has_no_rebalance_timeout() -> None:
    """In version 0 the session timeout is also the rebalance timeout; later versions have both."""
    body = JoinGroupRequest(session_timeout_ms=10, rebalance_timeout_ms=20)
    assert rebalance_timeout_of(JoinGroup("r", 0, NOBODY, body, "")) == 10
    assert rebalance_timeout_of(JoinGroup("r", 1, NOBODY, body, "")) == 20


def test_protocols_come_in_the_order_of_preference() -> None:
    """Each protocol name comes with its metadata, in the order of the request."""
    listed = [JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=name.encode()) for name in ("b", "a")]
    body = JoinGroupRequest(protocols=listed)
    assert protocols_of(JoinGroup("r", 5, NOBODY, body, "")) == [("b", b"b"), ("a", b"a")]
