"""`tenure serve`: run a coordinator until SIGTERM or SIGINT.

On standard output stands one line, once requests are accepted: `ready listen=HOST:PORT[,...] node=ID data=DIR`. Log
lines go to standard error. What keeps it from starting, a wrong setting above all, is one line there and exit code 2.

House rule: nothing is imported before it is needed; this is the command whose start is measured.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from coordinator.cli.exit_codes import ExitCode
from coordinator.config import Config, ConfigError, load
from coordinator.server.app import Server, StartFailed


def serve(
    listen: str | None, data_dir: Path | None, config_file: Path | None, sets: Sequence[str], log_format: str | None
) -> int:
    """Run the server with what the command line says; the exit code."""
    try:
        config, warnings = _configure(listen, data_dir, config_file, sets, log_format)
        return _run(config, warnings)
    except (ConfigError, StartFailed) as error:
        print(f"tenure: {error}", file=sys.stderr)
        return ExitCode.USAGE


def _configure(
    listen: str | None, data_dir: Path | None, config_file: Path | None, sets: Sequence[str], log_format: str | None
) -> tuple[Config, list[str]]:
    flags: dict[str, str] = {}
    if listen is not None:
        flags["listeners"] = f"PLAINTEXT://{listen}"
    if data_dir is not None:
        flags["log.dirs"] = str(data_dir)
    if log_format is not None:
        flags["tenure.log.format"] = log_format
    properties, file_name = "", ""
    if config_file is not None:
        try:
            properties, file_name = config_file.read_text(encoding="utf-8"), str(config_file)
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"--config: {config_file}: {getattr(error, 'strerror', None) or error}") from error
    return load(flags=flags, sets=sets, environment=os.environ, properties=properties, file_name=file_name)


def _run(config: Config, warnings: Sequence[str]) -> int:
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(config, warnings))


async def _serve(config: Config, warnings: Sequence[str]) -> int:
    server = Server(config, warnings=warnings, on_loaded=_settle)
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def end(signal_number: int) -> None:
        # A second signal takes its usual way, should the end itself hang.
        loop.remove_signal_handler(signal_number)
        ended.set()

    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, end, signal_number)
    await server.start()
    listen = ",".join(_address(host, port) for host, port in server.addresses)
    print(f"ready listen={listen} node={config.node_id} data={config.log_dirs}", flush=True)
    waits = [asyncio.ensure_future(event.wait()) for event in (ended, server.failed)]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()
    await server.stop()
    return ExitCode.FINDINGS if server.failed.is_set() else ExitCode.DONE


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _settle() -> None:
    """What is there after the load stays: the garbage collector need not look at it again and again."""
    gc.collect()
    gc.freeze()
