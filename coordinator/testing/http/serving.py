"""A process that is a server under test with its control: `tenure serve --control HOST:PORT`.

The server is a `Tenure`, on a thread of its own. The control is on the main thread's loop, so it goes on while the
server is killed, started again or reset. SIGTERM or SIGINT stops both.

Where no log.dirs is set, groups are in memory. The settings are those of `tenure serve`; those that nobody set have the
kit's values where it has its own.

House rule: only this module knows that there is a process.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import uvloop
from anyio import to_thread
from starlette.middleware import Middleware

from coordinator.config import CONTROL, Config, ConfigError, with_values
from coordinator.loop.clock import LoopClock
from coordinator.loop.lines import Lines
from coordinator.loop.pace import Pace
from coordinator.server.app import StartFailed, reason
from coordinator.server.process import allow_files
from coordinator.server.wire.handshakes import Handshakes
from coordinator.server.wire.listener import bind
from coordinator.site.access import RefusedTokens, TokenCheck
from coordinator.site.guard import Guard
from coordinator.site.web import Web
from coordinator.testing.http.routes import NoBrowsers, routes
from coordinator.testing.tenure import DEFAULTS, IN_MEMORY, Tenure

if TYPE_CHECKING:
    import socket

    from coordinator.server.wire.certificates import Certificates
    from coordinator.site.guard import Secure

    OnReady = Callable[[Sequence[tuple[str, int]], Sequence[int], tuple[str, int]], None]


def run(config: Config, warnings: Sequence[str], on_ready: OnReady) -> None:
    """Serve until a signal comes. Raises StartFailed.

    on_ready: called with the addresses of all listeners, the ids of all nodes, and the address of the control, when
    requests are accepted.
    """
    allow_files()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(config, warnings, on_ready))


def tenure_of(config: Config) -> Tenure:
    """The server that a configuration describes, not started. Its log lines go to standard error."""
    data_dir = config.log_dirs if is_on_disk(config) else None
    kit = DEFAULTS if is_on_disk(config) else DEFAULTS | IN_MEMORY
    unset = {name: text for name, text in kit.items() if name not in config.stated}
    return Tenure(config=with_values(config, unset), data_dir=data_dir, nodes=config.control_nodes, log=sys.stderr)


def is_on_disk(config: Config) -> bool:
    """Whether a server with control keeps its groups in a folder."""
    return "log.dirs" in config.stated


async def _serve(config: Config, warnings: Sequence[str], on_ready: OnReady) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    clock = LoopClock(loop)
    lines = Lines(sys.stderr, config.log_format, config.node_id, clock)
    for warning in warnings:
        lines.warn("setting_ignored", warning)
    listening = _bound(config)
    tenure = tenure_of(config)
    pace = Pace(clock, loop.call_soon)
    certificates, secure = _tls_of(config, clock, lines, pace)
    guard = Guard(clock, lines, config.http_max_connections, config.http_idle_timeout_ms, pace, secure)
    refused = RefusedTokens("control", clock, lines)
    token = Middleware(TokenCheck, token=config.control_token, setting="tenure.control.token", refused=refused)
    web = Web(guard, config.http_hosts, lines, [token, Middleware(NoBrowsers)])
    try:
        await to_thread.run_sync(tenure.start)
        await web.start(listening, routes(tenure))
        on_ready(tenure.addresses, [node.id for node in tenure.nodes], listening.getsockname()[:2])
        await ended.wait()
    finally:
        # The first stop ends all waits of operations. The second one ends a server that an operation started meanwhile.
        await to_thread.run_sync(tenure.stop)
        await web.stop()
        if certificates is not None:
            await certificates.stop()
        await to_thread.run_sync(tenure.stop)
        listening.close()


def _tls_of(config: Config, clock: LoopClock, lines: Lines, pace: Pace) -> tuple[Certificates | None, Secure | None]:
    """TLS of the control, if it has any. Raises StartFailed."""
    if not config.has_tls(CONTROL):
        return None, None
    # cryptography takes as long to import as the rest of a start.
    from coordinator.server.wire.certificates import Certificates  # noqa: PLC0415

    try:
        certificates = Certificates(config)
    except ConfigError as error:
        raise StartFailed(str(error)) from error
    certificates.start(clock, lines)
    soon = asyncio.get_running_loop().call_soon
    return certificates, certificates.securing(CONTROL, Handshakes(clock, lines, pace, soon))


def _bound(config: Config) -> socket.socket:
    """The socket of the control. Raises StartFailed."""
    (listener,) = config.control
    try:
        return bind(listener)
    except OSError as error:
        raise StartFailed(f"tenure.control: {listener.address}: {reason(error)}") from error
