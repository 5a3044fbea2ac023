"""A name as a Lease of Kubernetes: one object for each name of the pool, with the name's name.

The holder's clock alone says until when it has the name: it counts from before the renewal was sent. Another program
takes a Lease that was not renewed for its duration since it first saw that renewal. The API server takes a write only
of the Lease's newest version, so of two that try at once one gets it. `leaseTransitions` is the token.

House rule: no two runs have the same holder's name, so that a program that restarts waits for its own earlier run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from coordinator.seats.api import NOT_FOUND, Api, ApiError, Lease, connect, lease_path
from coordinator.seats.membership import BEATS, PAUSE_S
from coordinator.seats.supervisor import NONE_FREE, Leased, Lost, Report, Waits

FINAL = frozenset({400, 401, 403, NOT_FOUND, 422})
"""After these answers another try ends alike: no right, no namespace, no name for a Lease."""


class KubernetesLease:
    """See the module. session_s: how long a Lease lasts without a renewal, in whole seconds."""

    def __init__(
        self, kubeconfig: Path | None, namespace: str, pool: tuple[str, ...], identity: str, session_s: float
    ) -> None:
        self._kubeconfig, self._namespace, self._pool = kubeconfig, namespace, pool
        self._identity, self._session_s = identity, int(session_s)
        self._holder = f"{identity}_{uuid4().hex[:8]}"
        self._held: Lease | None = None

    async def keep(self, report: Callable[[Report], None], clock: Callable[[], float]) -> None:
        """Get a name and keep it, until it is lost."""
        try:
            async with connect(self._kubeconfig) as api:
                await self._keep(api, report, clock)
        except ApiError as error:  # of a kubeconfig that can't be read, or a refusal
            report(Lost(str(error)))

    async def release(self) -> None:
        """Give the name back."""
        if self._held is not None:
            async with connect(self._kubeconfig) as api:
                self._held.api = api
                with suppress(ApiError):
                    await self._held.release()

    async def _keep(self, api: Api, report: Callable[[Report], None], clock: Callable[[], float]) -> None:
        leases = {
            name: Lease(api, self._namespace, name, self._holder, clock, owner=self._identity) for name in self._pool
        }
        name = await self._get(api, leases, report, clock)
        held, trouble = leases[name], ""
        self._held = held
        while held.is_held:
            report(Leased(name, held.token, held.until, trouble))
            await asyncio.sleep(self._session_s / BEATS)
            try:
                await held.renew(self._session_s)
                trouble = ""
            except ApiError as error:
                trouble = str(error)
        report(Lost("another program has its Lease" if held.is_lost else "its lease was not renewed in time"))

    async def _get(
        self, api: Api, leases: dict[str, Lease], report: Callable[[Report], None], clock: Callable[[], float]
    ) -> str:
        """Wait for a name that is free, first for that of an earlier run. Raises ApiError if there can be none."""
        patient_until = clock() + 2 * self._session_s
        while True:
            try:
                items, _ = await api.list(lease_path(self._namespace), lambda found: found)
                found = {each["metadata"]["name"]: each for each in items}
                own = [name for name, lease in leases.items() if lease.sees(found.get(name)) == self._identity]
                free = [name for name, lease in leases.items() if lease.is_free(self._session_s)]
                free.sort(key=lambda name: (name not in own, leases[name].token))
                is_near = own and own[0] not in free and clock() < patient_until
                for name in [] if is_near else free:
                    await leases[name].renew(self._session_s)
                    if leases[name].is_held:
                        return name
                if not is_near:
                    report(Waits(NONE_FREE))
            except ApiError as error:
                if error.status in FINAL:
                    raise
                report(Waits(str(error)))
            await asyncio.sleep(max(PAUSE_S, self._session_s / BEATS))
