"""These tests run as those of the server do: on its kind of event loop, and its collector ends with each of them."""

from __future__ import annotations

from tests.server.conftest import collector, peer, pytest_asyncio_loop_factories, server

__all__ = ["collector", "peer", "pytest_asyncio_loop_factories", "server"]
