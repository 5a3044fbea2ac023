"""coordinator.seats.api: lists that are followed, and a lease, on a small API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from coordinator.seats import api as module
from coordinator.seats.api import Api, ApiError, Lease, connect, event_of, follow
from coordinator.seats.pods import Object, StatefulSet
from tests.seats.api_server import ApiServer
from tests.support.patience import WITHIN_S

PODS = "/api/v1/pods"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/shop/leases"


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    """Yield an API server without objects."""
    async with ApiServer().serving() as started:
        yield started


@pytest.fixture
async def api(server: ApiServer, tmp_path: Path) -> AsyncIterator[Api]:
    """Yield a client of it."""
    async with connect(server.kubeconfig(tmp_path)) as connected:
        yield connected


class Followed:
    """The lists and changes that `follow` hands on."""

    def __init__(self, api: Api, path: str = PODS) -> None:
        self.told: list[Any] = []
        self.pauses: list[float] = []
        self._more = asyncio.Event()
        self._task = asyncio.create_task(
            follow(api, path, _name, self._tell, self._happened, self._failed, self._sleep)
        )

    async def first(self, count: int) -> list[Any]:
        """All that was told, once there is so much."""
        await self.wait_for(lambda: len(self.told) >= count)
        return self.told

    async def wait_for(self, holds: Callable[[], bool]) -> None:
        """Wait until it holds; look again after each thing that is told."""
        async with asyncio.timeout(WITHIN_S):
            while not holds():
                self._more.clear()
                await self._more.wait()

    async def close(self) -> None:
        """Stop following."""
        self._task.cancel()
        await asyncio.wait({self._task})

    def _tell(self, what: Any) -> None:
        self.told.append(what)
        self._more.set()

    def _happened(self, kind: str, found: Object) -> None:
        self._tell((kind, _name(found)))

    def _failed(self, text: str) -> None:
        if text:
            self._tell(text)

    async def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self._more.set()
        if len(self.pauses) >= 8:
            await asyncio.Event().wait()


def _name(found: Object) -> str:
    return str(found["metadata"]["name"])


async def test_a_collection_is_listed_in_pages_and_followed(
    server: ApiServer, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First all objects, then each change, once; a bookmark says nothing."""
    monkeypatch.setattr(module, "PAGE", 2)
    server.bookmarks = True
    for name in "abc":
        await server.put(f"{PODS}/{name}", {})
    followed = Followed(api)
    assert await followed.first(1) == [["a", "b", "c"]]
    await server.put("/api/v1/other/x", {})
    await server.put(f"{PODS}/a", {})
    await server.delete(f"{PODS}/b")
    assert await followed.first(3) == [["a", "b", "c"], ("MODIFIED", "a"), ("DELETED", "b")]
    await followed.close()


async def test_a_watch_goes_on_from_its_last_version(server: ApiServer, api: Api) -> None:
    """A connection that is lost costs no event and no list."""
    followed = Followed(api)
    assert await followed.first(1) == [[]]
    await server.put(f"{PODS}/a", {})
    assert await followed.first(2) == [[], ("ADDED", "a")]
    server.is_silent = True
    await server.put(f"{PODS}/b", {})
    server.is_silent = False
    await server.put(f"{PODS}/c", {})
    assert await followed.first(4) == [[], ("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c")]
    await followed.close()


@pytest.mark.parametrize("why", ["410 Gone", "silence"])
async def test_a_list_is_read_anew(server: ApiServer, api: Api, why: str) -> None:
    """If the server has forgotten the version, and if a whole watch says nothing: its versions may have gone back."""
    await server.put(f"{PODS}/a", {})
    if why == "410 Gone":
        server.forgotten = 100
        await server.put(f"{PODS}/b", {})
    else:
        server.is_silent = True
    followed = Followed(api)
    await followed.wait_for(lambda: len(followed.told) >= 2)
    await followed.close()
    assert followed.told[0] == followed.told[1]
    assert followed.pauses[:1] == [0.5]


async def test_a_server_that_refuses_is_asked_again_later_each_time(server: ApiServer, api: Api) -> None:
    """The pause doubles up to half a minute; the text is the server's."""
    server.refuses = 403
    followed = Followed(api)
    await followed.wait_for(lambda: len(followed.pauses) >= 8)
    await followed.close()
    assert followed.pauses == [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert set(followed.told) == {"refused: 403"}


async def test_a_server_that_does_not_answer_is_asked_often(tmp_path: Path) -> None:
    """At least every 2 s: what ends while nobody listens keeps its seat."""
    async with ApiServer().serving() as server:
        kubeconfig = server.kubeconfig(tmp_path)
    async with connect(kubeconfig) as api:
        followed = Followed(api)
        await followed.wait_for(lambda: len(followed.pauses) >= 8)
        await followed.close()
    assert followed.pauses == [0.5, 1, 2, 2, 2, 2, 2, 2]


async def test_a_watch_that_is_open_again_is_well_though_nothing_happens(server: ApiServer, api: Api) -> None:
    """Readiness doesn't wait for the next change or bookmark."""
    told: list[str] = []
    well = asyncio.Event()

    def listed(_: list[str]) -> None:
        server.refuses = 503

    def failed(text: str) -> None:
        told.append(text)
        server.refuses = 0
        if not text:
            well.set()

    async def sleep(_: float) -> None:
        """Try again at once."""

    work = asyncio.create_task(follow(api, PODS, _name, listed, lambda *_: None, failed, sleep))
    await asyncio.wait_for(well.wait(), WITHIN_S)
    work.cancel()
    assert told == ["refused: 503", ""]


async def test_an_object_that_is_missing_is_none(server: ApiServer, api: Api) -> None:
    """Any other refusal is an error."""
    assert await api.find(f"{PODS}/a") is None
    server.refuses = 500
    with pytest.raises(ApiError, match="refused: 500"):
        await api.find(f"{PODS}/a")


async def test_a_server_that_is_away_is_an_error(tmp_path: Path) -> None:
    """The text names the request."""
    async with ApiServer().serving() as server:
        path = server.kubeconfig(tmp_path)
    async with connect(path) as api:
        with pytest.raises(ApiError, match=f"GET {PODS}: "):
            await api.get(PODS)


async def test_a_kubeconfig_that_says_nothing_is_an_error(tmp_path: Path) -> None:
    """As one line."""
    path = tmp_path / "empty"
    path.write_text("")
    with pytest.raises(ApiError):
        async with connect(path):
            pass


async def test_without_a_kubeconfig_the_error_names_the_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the file that is missing."""
    missing = tmp_path / "config"
    monkeypatch.setattr(module, "KUBE_CONFIG_DEFAULT_LOCATION", str(missing))
    with pytest.raises(ApiError, match=f"there is no file {missing}: --kubeconfig"):
        async with connect(None):
            pass


class Clock:
    """Seconds that a test moves."""

    now = 100.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


async def test_one_holds_the_lease_until_it_stops_renewing(server: ApiServer, api: Api) -> None:
    """The other one waits for the whole duration since it saw the last renewal, on its own clock."""
    clock = Clock()
    first, second = (Lease(api, "shop", "seats", name, clock) for name in ("first", "second"))
    assert not first.is_held
    await first.renew(15)
    await second.renew(15)
    assert (first.is_held, second.is_held) == (True, False)
    clock.now += 10
    await first.renew(15)
    await second.renew(15)
    clock.now += 14
    await second.renew(15)
    assert (first.is_held, second.is_held) == (True, False)
    clock.now += 1
    assert not first.is_held
    await second.renew(15)
    assert second.is_held
    await first.renew(15)
    assert not first.is_held
    lease = await api.get(f"{LEASES}/seats")
    assert (lease["spec"]["holderIdentity"], lease["spec"]["leaseTransitions"]) == ("second", 2)


async def test_a_lease_that_is_given_back_is_free_at_once(server: ApiServer, api: Api) -> None:
    """Only its holder can give it back."""
    clock = Clock()
    first, second = (Lease(api, "shop", "seats", name, clock) for name in ("first", "second"))
    await first.renew(15)
    await second.release()
    await second.renew(15)
    assert not second.is_held
    await first.release()
    assert not first.is_held
    await second.renew(15)
    assert second.is_held


async def test_of_two_that_take_a_lease_one_gets_it(server: ApiServer, api: Api) -> None:
    """The server refuses the second change to one version, and the second creation."""
    clock = Clock()
    for _ in range(2):
        both = [Lease(api, "shop", "seats", name, clock) for name in ("first", "second")]
        await asyncio.gather(*(lease.renew(15) for lease in both))
        assert sum(lease.is_held for lease in both) == 1
        for lease in both:
            await lease.release()


async def test_a_holder_that_cannot_renew_loses_the_lease_in_time(server: ApiServer, api: Api) -> None:
    """Its own time began before it asked."""
    clock = Clock()
    lease = Lease(api, "shop", "seats", "first", clock)
    await lease.renew(15)
    server.refuses = 500
    clock.now += 14
    with pytest.raises(ApiError):
        await lease.renew(15)
    assert lease.is_held
    clock.now += 1
    assert not lease.is_held


async def test_an_event_is_about_a_set(server: ApiServer, api: Api) -> None:
    """With a name that the server makes."""
    found = StatefulSet("u", "shop", "w", 0, 3, is_ending=False)
    path, body = event_of(found, "SeatFreed", "freed w-4", "me", is_warning=False)
    made = await api.create(path, body)
    assert made["regarding"] == {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "namespace": "shop",
        "name": "w",
        "uid": "u",
    }
    assert (made["reason"], made["note"], made["type"]) == ("SeatFreed", "freed w-4", "Normal")
