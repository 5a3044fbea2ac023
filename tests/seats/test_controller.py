"""coordinator.seats.controller: a small API server and a real group of members; tests/kubernetes has the real one."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from coordinator.client.client import Client, Cluster
from coordinator.client.connection import NEWEST, Connection, Deadline
from coordinator.client.errors import Refused
from coordinator.client.groups import remove_seats
from coordinator.seats import controller as module
from coordinator.seats.api import connect
from coordinator.seats.controller import Controller, Options, _address, holders
from coordinator.testing.members import Members
from coordinator.testing.tenure import Tenure
from protocol.messages import Message
from schemas.errors import ErrorCode
from tests.client.scripted import served
from tests.seats.api_server import ApiServer, a_pod, a_set
from tests.support.patience import WITHIN_S
from tests.support.tenure import wait_until

SETS, PODS = "/apis/apps/v1/namespaces/shop/statefulsets", "/api/v1/namespaces/shop/pods"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/shop/leases/seats"
EVENTS = "/apis/events.k8s.io/v1/namespaces/shop/events"
OPTIONS = Options("shop", "me", ("shop", "seats"), 5.0, frees=True, any_host=False)


@pytest.fixture
def tenure(tmp_path: Path) -> Iterator[Tenure]:
    """Yield a server with a topic."""
    with Tenure(data_dir=tmp_path / "data") as started:
        started.create_topic("orders", 3)
        yield started


@pytest.fixture
def members(tenure: Tenure) -> Members:
    """Return the programs of the pods."""
    made = tenure.group("orders").fill(3, client_id="w", topics=["orders"])
    made.wait_until_seated()
    return made


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    """Yield an API server with a set of three pods."""
    async with ApiServer().serving() as started:
        await started.put(f"{SETS}/w", a_set(3))
        for ordinal in range(3):
            await started.put(f"{PODS}/w-{ordinal}", a_pod(ordinal))
        yield started


class Running:
    """A controller that runs, and what it said."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self._more = asyncio.Event()

    def say(self, line: str) -> None:
        """Take a line."""
        self.said.append(line)
        self._more.set()

    @asynccontextmanager
    async def running(
        self, server: ApiServer, cluster: Cluster, folder: Path, options: Options = OPTIONS
    ) -> AsyncIterator[Controller]:
        """Run for a block, in which it has read all sets and pods."""
        async with connect(server.kubeconfig(folder)) as api:
            controller = Controller(api, cluster, options, self.say)
            work = asyncio.create_task(controller.run())
            try:
                await asyncio.wait_for(controller.known.wait(), WITHIN_S)
                yield controller
            finally:
                work.cancel()
                with suppress(asyncio.CancelledError):
                    await work

    async def until(self, pattern: str, count: int = 1) -> None:
        """Wait until it said so many lines with this pattern."""
        try:
            async with asyncio.timeout(WITHIN_S):
                while sum(bool(re.search(pattern, line)) for line in self.said) < count:
                    self._more.clear()
                    await self._more.wait()
        except TimeoutError:
            raise AssertionError(f"never said {pattern!r}: {self.said}") from None


async def names(tenure: Tenure, count: int) -> set[str]:
    """The instance ids that have a seat, once there are so many."""
    group = await asyncio.to_thread(tenure.group("orders").wait_until_stable, members=count)
    return set(group.assignment)


async def scale_down(server: ApiServer, members: Members, replicas: int, *, has_ended: bool = True) -> None:
    """Let the set shrink, and its pods end, the last one first."""
    await server.put(f"{SETS}/w", a_set(replicas))
    for ordinal in reversed(range(replicas, 3)):
        await asyncio.to_thread(members.fall_silent, ordinal)
        await server.delete(f"{PODS}/w-{ordinal}", a_pod(ordinal, has_ended=has_ended))


async def test_a_scale_down_frees_seats(server: ApiServer, tenure: Tenure, members: Members, tmp_path: Path) -> None:
    """Members leave the group, lines and Events say so, and the metrics count it."""
    running = Running()
    async with running.running(server, Cluster(tenure.bootstrap_servers), tmp_path) as controller:
        await running.until("has the lease")
        await scale_down(server, members, 1)
        await running.until(
            r"^freed w-1 of group orders \(pod shop/w-1\) after \d.\d\d s: StatefulSet w wants ordinal 0,"
        )
        await running.until(r"^freed w-2 of group orders")
        assert controller.metrics.registry.get_sample_value("tenure_seats_verdicts_total", {"verdict": "freed"}) == 2
        assert controller.metrics.registry.get_sample_value("tenure_seats_pods") == 1
    assert await names(tenure, 1) == {"w-0"}
    events = [found for path, found in server.objects.items() if path.startswith(EVENTS)]
    assert [event["reason"] for event in events] == ["SeatFreed"] * 2
    assert server.objects[LEASE]["spec"]["holderIdentity"] == ""


KAFKA_24 = {"ApiVersions": 3, "Metadata": 9, "FindCoordinator": 3, "DescribeGroups": 5, "LeaveGroup": 4}
"""The newest versions that Apache Kafka 2.4 has of the requests that this controller may send."""


class Counted(Cluster):
    """A cluster whose clients count their requests, and take it for Apache Kafka 2.4."""

    requests: Counter[str]

    def client(self, timeout: float) -> Client:
        """See Cluster."""
        requests = self.requests = Counter[str]()

        class Counting(Connection):
            def version(self, request_class: type[Message], at_least: int = 0, at_most: int = NEWEST) -> int:
                name = request_class.NAME.removesuffix("Request")
                if name not in KAFKA_24 or at_least > KAFKA_24[name]:
                    raise Refused(ErrorCode.UNSUPPORTED_VERSION, name)
                return super().version(request_class, at_least, min(at_most, KAFKA_24[name]))

            def request(self, message: Message, version: int, deadline: Deadline) -> Any:
                requests[type(message).NAME.removesuffix("Request")] += 1
                return super().request(message, version, deadline)

        return Client(self.bootstrap, timeout, connect=Counting)


async def test_a_seat_costs_four_requests_that_kafka_2_4_has(
    server: ApiServer, tenure: Tenure, members: Members, tmp_path: Path
) -> None:
    """Two questions for the coordinator, a description and a removal; at the start one that logs in."""
    running, cluster = Running(), Counted(tenure.bootstrap_servers)
    async with running.running(server, cluster, tmp_path):
        await running.until("has the lease")
        await asyncio.to_thread(wait_until, lambda: cluster.requests == {"Metadata": 1}, "it has logged in", WITHIN_S)
        await scale_down(server, members, 2)
        await running.until("^freed w-2")
    assert cluster.requests == {"Metadata": 1, "FindCoordinator": 2, "DescribeGroups": 1, "LeaveGroup": 1}


async def test_seats_that_end_together_share_requests(
    server: ApiServer, tenure: Tenure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """30 seats that are free at one moment are described once, and few requests remove them."""
    monkeypatch.setattr(module, "RENEW_S", 0.05)
    count = 30
    members = tenure.group("orders").fill(count, client_id="w", topics=["orders"])
    await asyncio.to_thread(members.wait_until_seated)
    for ordinal in range(count):
        await server.put(f"{PODS}/w-{ordinal}", a_pod(ordinal))
    await server.put(f"{SETS}/w", a_set(0))
    await server.put(LEASE, {"spec": {"holderIdentity": "other"}})
    running, cluster = Running(), Counted(tenure.bootstrap_servers)
    async with running.running(server, cluster, tmp_path) as controller:
        for ordinal in range(count):
            await server.delete(f"{PODS}/w-{ordinal}", a_pod(ordinal, has_ended=True))
        pods = partial(controller.metrics.registry.get_sample_value, "tenure_seats_pods")
        await asyncio.to_thread(wait_until, lambda: pods() == 0, "the controller saw all ends", WITHIN_S)
        await server.put(LEASE, {"spec": {"holderIdentity": ""}})
        await running.until("^freed ", count)
    assert cluster.requests["DescribeGroups"] == 1
    assert cluster.requests["LeaveGroup"] <= count // 3


async def test_a_doubt_frees_nothing(server: ApiServer, tenure: Tenure, members: Members, tmp_path: Path) -> None:
    """A pod that was forced out: a warning about the set says why."""
    running = Running()
    async with running.running(server, Cluster(tenure.bootstrap_servers), tmp_path):
        await scale_down(server, members, 2, has_ended=False)
        await running.until("^kept in doubt w-2 of group orders")
    (event,) = (found for path, found in server.objects.items() if path.startswith(EVENTS))
    assert (event["reason"], event["type"]) == ("SeatKept", "Warning")
    assert await names(tenure, 3) == {"w-0", "w-1", "w-2"}


async def test_of_two_controllers_the_holder_of_the_lease_acts(
    server: ApiServer, tenure: Tenure, members: Members, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one knows what ended meanwhile, and goes on when the first one, which frees nothing, stops."""
    monkeypatch.setattr(module, "RENEW_S", 0.05)
    first, second = Running(), Running()
    other = OPTIONS._replace(identity="other")
    async with AsyncExitStack() as stack:
        async with first.running(server, Cluster(tenure.bootstrap_servers), tmp_path, OPTIONS._replace(frees=False)):
            await first.until("has the lease")
            await stack.enter_async_context(second.running(server, Cluster(tenure.bootstrap_servers), tmp_path, other))
            await scale_down(server, members, 2)
            await first.until("^would free w-2")
            assert second.said == []
        await second.until("^freed w-2")
    assert await names(tenure, 2) == {"w-0", "w-1"}


async def test_a_cluster_that_is_away_is_asked_again(
    server: ApiServer, tenure: Tenure, members: Members, tmp_path: Path
) -> None:
    """The seat is freed once Kafka answers."""
    running = Running()
    options = OPTIONS._replace(timeout=0.2)
    async with running.running(server, Cluster(tenure.bootstrap_servers), tmp_path, options):
        await running.until("has the lease")
        await asyncio.to_thread(tenure.kill)
        await scale_down(server, members, 2)
        await running.until("^kept in doubt w-2 of group orders .*: trying again: ")
        await asyncio.to_thread(tenure.start)
        await running.until("^freed w-2 of group orders")
    assert await names(tenure, 2) == {"w-0", "w-1"}


async def test_a_cluster_that_is_away_at_the_start_is_said(server: ApiServer, tenure: Tenure, tmp_path: Path) -> None:
    """The controller goes on: it sees which pods end."""
    tenure.kill()
    running = Running()
    async with running.running(server, Cluster(tenure.bootstrap_servers), tmp_path):
        await running.until(f"^kafka: .*{tenure.bootstrap_servers}")
        await running.until("has the lease")
    assert len([line for line in running.said if line.startswith("kafka: ")]) == 1


async def test_an_api_server_that_is_away_is_said_once(server: ApiServer, tenure: Tenure, tmp_path: Path) -> None:
    """And readiness says so too, until it answers."""
    running = Running()
    async with running.running(server, Cluster(tenure.bootstrap_servers), tmp_path) as controller:
        await running.until("has the lease")
        assert controller.not_ready == ""
        server.refuses = 503
        await server.drop_watches()
        await running.until("^pods: ")
        await running.until("^sets: ")
        assert controller.not_ready == "refused: 503"
        server.refuses = 0
        await running.until("^pods: it works again")
        await running.until("^sets: it works again")
        assert controller.not_ready == ""
    pods = [line for line in running.said if line.startswith("pods: ")]
    assert pods == ["pods: trying again: refused: 503", "pods: it works again"]


@pytest.fixture
def client(tenure: Tenure) -> Iterator[Client]:
    """Yield a client of a server whose group `orders` has the members w-0 and w-1."""
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
    refusal = {"group_id": "orders", "error_code": ErrorCode.GROUP_AUTHORIZATION_FAILED}
    with (
        served({"DescribeGroups": [{"groups": [refusal]}]}) as (_, client),
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
