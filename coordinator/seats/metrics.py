"""Metrics and health of the controller over HTTP: /metrics, /healthz, /readyz.

House rule: a metric has no label that a pod or a group could fill.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import choose_encoder

from coordinator.seats.core import Kind

if TYPE_CHECKING:
    import socket

BUCKETS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)


class Metrics:
    """Counts of the controller's work since its start."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.pods = Gauge("tenure_seats_pods", "Pods that name seats.", registry=registry)
        self.leads = Gauge("tenure_seats_leads", "1 if this controller has the lease and acts.", registry=registry)
        self._verdicts = Counter(
            "tenure_seats_verdicts", "Seats whose pod ended, by what became of them.", ["verdict"], registry=registry
        )
        self._waited = Histogram(
            "tenure_seats_freed_after_seconds",
            "From a pod's end until its seat was free.",
            buckets=BUCKETS,
            registry=registry,
        )
        for kind in Kind:
            self._verdicts.labels(kind.name.lower())

    def count(self, kind: Kind, waited_s: float) -> None:
        """Count a verdict."""
        self._verdicts.labels(kind.name.lower()).inc()
        if kind is Kind.FREED:
            self._waited.observe(waited_s)


@asynccontextmanager
async def serving(listening: socket.socket, metrics: Metrics, not_ready: Callable[[], str]) -> AsyncIterator[None]:
    """Answer HTTP requests on a bound socket for a block."""

    async def show(request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(metrics.registry), headers={"Content-Type": content_type})

    async def alive(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def ready(_: web.Request) -> web.Response:
        why = not_ready()
        return web.Response(status=503 if why else 200, text=f"{why or 'ok'}\n")

    app = web.Application()
    app.add_routes([web.get("/metrics", show), web.get("/healthz", alive), web.get("/readyz", ready)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.SockSite(runner, listening).start()
        yield
    finally:
        await runner.cleanup()
