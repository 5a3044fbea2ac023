"""coordinator.seats.metrics: counts and health over HTTP."""

from __future__ import annotations

import socket

from aiohttp import ClientSession

from coordinator.seats.core import Kind
from coordinator.seats.metrics import Metrics, serving


async def test_http_shows_counts_and_health() -> None:
    """Each verdict is there from the start; readiness says why not."""
    metrics = Metrics()
    metrics.count(Kind.FREED, 0.5)
    metrics.count(Kind.DOUBT, 0.0)
    why = "sets and pods are being read"
    listening = socket.create_server(("127.0.0.1", 0))
    async with (
        serving(listening, metrics, lambda: why),
        ClientSession(f"http://127.0.0.1:{listening.getsockname()[1]}") as http,
    ):

        async def get(path: str) -> tuple[int, str]:
            async with http.get(path) as response:
                return response.status, await response.text()

        assert await get("/healthz") == (200, "ok\n")
        assert await get("/readyz") == (503, f"{why}\n")
        why = ""
        assert await get("/readyz") == (200, "ok\n")
        status, text = await get("/metrics")
    assert status == 200
    assert 'tenure_seats_verdicts_total{verdict="freed"} 1.0' in text
    assert 'tenure_seats_verdicts_total{verdict="keep"} 0.0' in text
    assert "tenure_seats_freed_after_seconds_sum 0.5" in text
