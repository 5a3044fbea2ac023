"""`speed.new` makes the same tuple as the constructor."""

from __future__ import annotations

from coordinator.group.client import Client
from coordinator.group.notes import MemberPending
from protocol.speed import new


def test_it_is_the_same() -> None:
    """The tuple of `speed.new` equals the constructor's, for a NamedTuple and for a note."""
    client = new(Client, ("c", "/h", "", "", ""))
    assert client == Client("c", "/h", "", "", "")
    assert (type(client), client.host) == (Client, "/h")
    pending = new(MemberPending, ("g", 1, "m", "c", "/h", 5, "User:a"))
    assert pending == MemberPending("g", 1, "m", "c", "/h", 5, "User:a")
    assert (type(pending), pending.client_host) == (MemberPending, "/h")
