"""An observer whose thread has ended says that it needs a restart."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.client.client import Cluster
from coordinator.config import load
from coordinator.loop.clock import LoopClock
from coordinator.observe.live import Live
from coordinator.observe.observer import Observer, Options
from tests.observe.conftest import Written


def test_a_thread_that_ended_is_trouble(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its fault is none that the observer knows, so nothing brings it back."""
    monkeypatch.setattr(Live, "run", lambda *_: None)

    async def trouble() -> tuple[str, str]:
        config, _ = load(flags={"tenure.http": ("--http", "")}, sets=[], environment={})
        options = Options(Cluster("127.0.0.1:1"), 0.1, config)
        observer = Observer(options, written.lines, LoopClock(asyncio.get_running_loop()))
        before = observer.trouble
        await observer.start(None)
        live, _ = observer._looking
        live.join()
        after = observer.trouble
        await observer.stop()
        return before, after

    assert asyncio.run(trouble()) == ("", "ended by a fault: live")
