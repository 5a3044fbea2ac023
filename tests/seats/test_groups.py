"""coordinator.seats.groups: a seat's member, and its removal, on a real server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from coordinator.client.client import Client
from coordinator.client.errors import Refused
from coordinator.client.groups import remove_seats
from coordinator.seats.groups import _address, holders
from coordinator.testing.tenure import Tenure
from protocol.messages import DescribeGroupsResponse
from schemas.errors import ErrorCode
from tests.client.scripted import Scripted
from tests.support.patience import WITHIN_S


@pytest.fixture
def client() -> Iterator[Client]:
    """Yield a client of a server whose group `orders` has the members w-0 and w-1."""
    with Tenure() as tenure:
        tenure.create_topic("orders", 2)
        tenure.group("orders").fill(2, client_id="w", topics=["orders"]).wait_until_seated()
        with tenure.client() as made:
            yield made


def test_a_removal_names_the_member(client: Client) -> None:
    """Another member id removes nobody; the right one does, once."""
    found = holders(client, "orders")
    assert found["w-1"].host == "127.0.0.1"
    assert remove_seats(client, "orders", {"w-1": "w-1-of-yesterday"}) == {"w-1": ErrorCode.FENCED_INSTANCE_ID}
    assert holders(client, "orders") == found
    member_ids = {"w-1": found["w-1"].member_id, "w-0": "w-0-of-yesterday"}
    assert remove_seats(client, "orders", member_ids) == {"w-1": ErrorCode.NONE, "w-0": ErrorCode.FENCED_INSTANCE_ID}


def test_an_unknown_group_has_no_members(client: Client) -> None:
    """A group that doesn't exist has no holders."""
    assert set(holders(client, "orders")) == {"w-0", "w-1"}
    assert holders(client, "returns") == {}


def test_a_group_that_refuses_is_an_error() -> None:
    """Nobody knows whether the seat is free."""
    refusal = DescribeGroupsResponse.DescribedGroup(group_id="orders", error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    with (
        Scripted({"DescribeGroups": [DescribeGroupsResponse(groups=[refusal])]}) as server,
        Client(server.bootstrap, WITHIN_S) as client,
        pytest.raises(Refused, match="GROUP_AUTHORIZATION_FAILED"),
    ):
        holders(client, "orders")


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("/10.1.2.3", "10.1.2.3"),
        ("10.1.2.3", "10.1.2.3"),
        ("/0:0:0:0:0:0:0:1", "::1"),
        ("/0:0:0:0:0:ffff:a01:203", "10.1.2.3"),
        ("worker.example/10.1.2.3", "10.1.2.3"),
        ("/worker", "worker"),
        ("", ""),
    ],
)
def test_addresses_have_the_form_of_kubernetes(host: str, address: str) -> None:
    """Kafka writes a slash before them, and v6 in full."""
    assert _address(host) == address
