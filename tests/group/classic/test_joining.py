"""How the rules read a JoinGroup."""

from __future__ import annotations

from coordinator.group.classic.joining import SHARED_BYTES_MAX, protocols_of, rebalance_timeout_of
from coordinator.group.client import NOBODY
from coordinator.group.events import JoinGroup
from protocol.messages import JoinGroupRequest, decode, encode


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


def join_with(name: str, metadata_bytes: int) -> JoinGroup:
    """A JoinGroup of one protocol, decoded from bytes of its own."""
    body = JoinGroupRequest(
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=bytes(metadata_bytes))]
    )
    return JoinGroup("r", 5, NOBODY, decode(JoinGroupRequest, encode(body, 5), 5), "")


def test_members_with_equal_protocols_share_one_list() -> None:
    """A thousand members of a group keep one list; a long one, which a client can make up at will, isn't kept."""
    assert protocols_of(join_with("range", 40)) is protocols_of(join_with("range", 40))
    assert protocols_of(join_with("range", 40)) != protocols_of(join_with("range", 41))
    for name, metadata_bytes in (("range", SHARED_BYTES_MAX), ("r" * SHARED_BYTES_MAX, 40)):
        one, other = (protocols_of(join_with(name, metadata_bytes)) for _ in range(2))
        assert one == other
        assert one is not other
