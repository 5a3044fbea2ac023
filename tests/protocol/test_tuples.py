"""A tuple made past its constructor is the one that its constructor makes."""

from __future__ import annotations

from coordinator.group.client import Client
from coordinator.group.notes import MemberPending
from protocol.tuples import new


def test_it_is_the_same() -> None:
    """Of a NamedTuple and of a note."""
    client = new(Client, ("c", "/h", "", "", ""))
    assert client == Client("c", "/h", "", "", "")
    assert (type(client), client.host) == (Client, "/h")
    pending = new(MemberPending, ("g", 1, "m", "c", "/h", 5))
    assert pending == MemberPending("g", 1, "m", "c", "/h", 5)
    assert (type(pending), pending.client_host) == (MemberPending, "/h")
