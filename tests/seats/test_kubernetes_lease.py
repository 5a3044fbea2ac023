"""coordinator.seats.kubernetes_lease: names by Leases, with a session of 2 s, at a small API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from coordinator.seats.kubernetes_lease import KubernetesLease
from coordinator.seats.run import clock
from coordinator.seats.supervisor import Leased, Lost, Report, Waits
from tests.seats.api_server import ApiServer
from tests.support.patience import WITHIN_S

LEASES = "/apis/coordination.k8s.io/v1/namespaces/shop/leases"
SESSION_S = 2.0
LONG_S = 20.0
"""A session that does not end on a busy machine; a program that waits looks ten times in it."""


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    """Yield an API server without Leases."""
    async with ApiServer().serving() as started:
        yield started


class Keeping:
    """A program's lease that is kept, and its last report."""

    def __init__(
        self, server: ApiServer, folder: Path, identity: str, pool: tuple[str, ...], session_s: float = SESSION_S
    ) -> None:
        self.lease = KubernetesLease(server.kubeconfig(folder), "shop", pool, identity, session_s)
        self.last: Report | None = None
        self.troubles: set[str] = set()
        """Those of all reports of a name."""
        self._more = asyncio.Event()
        self._task = asyncio.create_task(self.lease.keep(self._report, clock))

    def _report(self, event: Report) -> None:
        self.last = event
        if isinstance(event, Leased):
            self.troubles.add(event.trouble)
        self._more.set()

    async def wait_for(self, kind: type[Report]) -> Report:
        """The first report of this kind."""
        async with asyncio.timeout(WITHIN_S):
            while not isinstance(self.last, kind):
                self._more.clear()
                await self._more.wait()
        return self.last

    async def wait_for_lease(self) -> Leased:
        """The first report of a name."""
        found = await self.wait_for(Leased)
        assert isinstance(found, Leased)
        return found

    async def die(self) -> None:
        """Stop at once."""
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task


async def test_programs_get_different_names(server: ApiServer, tmp_path: Path) -> None:
    """The third one of two names waits, until one is given back: its token is higher."""
    programs = [Keeping(server, tmp_path, name, ("w-0", "w-1"), LONG_S) for name in ("A", "B")]
    held = {(await program.wait_for_lease()).name: program for program in programs}
    assert set(held) == {"w-0", "w-1"}
    third = Keeping(server, tmp_path, "C", ("w-0", "w-1"), LONG_S)
    assert await third.wait_for(Waits) == Waits("no name is free")
    await held["w-1"].die()
    await held["w-1"].lease.release()
    found = await third.wait_for_lease()
    assert (found.name, found.token) == ("w-1", 2)
    for program in (*programs, third):
        await program.die()


async def test_a_program_that_comes_back_gets_its_own_name(server: ApiServer, tmp_path: Path) -> None:
    """It waits until its earlier run's time is over, though another name is free."""
    first = Keeping(server, tmp_path, "A", ("w-0", "w-1"))
    held = await first.wait_for_lease()
    await first.die()
    again = Keeping(server, tmp_path, "A", ("w-0", "w-1"))
    found = await again.wait_for_lease()
    assert (found.name, found.token) == (held.name, held.token + 1)
    assert found.until >= held.until + SESSION_S
    await again.die()


async def test_a_lease_that_another_one_took_is_lost(server: ApiServer, tmp_path: Path) -> None:
    """A Lease with another holder is lost, also if an admin wrote that holder."""
    program = Keeping(server, tmp_path, "A", ("w",))
    await program.wait_for_lease()
    found = server.objects[f"{LEASES}/w"]
    await server.put(f"{LEASES}/w", {**found, "spec": {**found["spec"], "holderIdentity": "other"}})
    assert await program.wait_for(Lost) == Lost("another program has its Lease")


async def test_a_lease_that_cannot_be_renewed_is_lost_in_time(server: ApiServer, tmp_path: Path) -> None:
    """A Lease is lost after its duration, however the server fails."""
    program = Keeping(server, tmp_path, "A", ("w",))
    await program.wait_for_lease()
    server.refuses = 500
    assert await program.wait_for(Lost) == Lost("its lease was not renewed in time")
    assert program.troubles == {"", "refused: 500"}


@pytest.mark.parametrize("status", [403, 422])
async def test_a_refusal_ends_the_wait(server: ApiServer, tmp_path: Path, status: int) -> None:
    """Without rights, or with names that Kubernetes refuses, the wait for a name ends with the reason."""
    server.refuses = status
    program = Keeping(server, tmp_path, "A", ("w",))
    assert await program.wait_for(Lost) == Lost(f"refused: {status}")


async def test_a_kubeconfig_that_says_nothing_ends_the_wait(server: ApiServer, tmp_path: Path) -> None:
    """The reason is one line."""
    program = Keeping(server, tmp_path, "A", ("w",))
    (tmp_path / "kubeconfig").write_text("")
    lost = await program.wait_for(Lost)
    assert isinstance(lost, Lost)
    assert lost.why.startswith("the way to Kubernetes is unknown: ")
