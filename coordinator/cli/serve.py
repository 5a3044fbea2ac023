"""`tenure serve`: run a coordinator until SIGTERM or SIGINT.

On standard output stands one line, once requests are accepted: `ready listen=HOST:PORT[,...] node=ID[,...] data=DIR`.
Log lines go to standard error. What keeps it from starting, a wrong setting above all, is one line there and exit
code 2.

The options are read by argparse: importing typer takes longer than all the rest of a start, and in a test suite a start
is what one waits for.

House rule: nothing is imported that a server doesn't need.
"""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Sequence
from pathlib import Path

from coordinator.cli.exit_codes import ExitCode, fail
from coordinator.config import Config, ConfigError, load
from coordinator.server.app import StartFailed
from coordinator.server.process import run


def serve(arguments: Sequence[str]) -> None:
    """Run the server with what the command line says behind `serve`."""
    options = _parser().parse_args(arguments)
    try:
        config, warnings = _configure(options)
        done = _run(config, warnings)
    except (ConfigError, StartFailed) as error:
        fail(ExitCode.USAGE, str(error))
    if not done:
        fail(ExitCode.FINDINGS, "the log can't be written any more, see above")


def _run(config: Config, warnings: Sequence[str]) -> bool:
    """Serve, in this process or in several; False if the log can't be written any more."""

    def ready(addresses: Iterable[tuple[str, int]], node_ids: Iterable[int]) -> None:
        print(ready_line(addresses, node_ids, config.log_dirs), flush=True)

    if config.workers == 1:
        return run(config, warnings, lambda server: ready(server.addresses, [config.node_id]))
    from coordinator.server.supervisor import supervise  # a start with one worker goes without

    supervise(config, warnings, ready)
    return True


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="tenure serve",
        description="Run a coordinator until SIGTERM or SIGINT.",
        epilog="Settings come from the options, then --set, TENURE_NAME and KAFKA_NAME in the environment, and FILE.",
        allow_abbrev=False,
    )
    parser.add_argument("--listen", metavar="HOST:PORT", help="where to listen; port 0 picks a free one")
    parser.add_argument("--data-dir", metavar="DIR", help="the folder for everything that is kept")
    parser.add_argument("--config", metavar="FILE", type=Path, help="settings, as a Java properties file")
    parser.add_argument(
        "--set", metavar="NAME=VALUE", action="append", default=[], help="a setting by Kafka's name; may be repeated"
    )
    parser.add_argument(
        "--workers", metavar="N", help="processes that share the work, each at a port of its own, from PORT on"
    )
    parser.add_argument(
        "--http", metavar="HOST:PORT", help="where to show metrics, health, groups and a page over HTTP"
    )
    parser.add_argument("--log-format", metavar="text|json", help="how to log")
    return parser


def _configure(options: Namespace) -> tuple[Config, list[str]]:
    flags: dict[str, str] = {}
    if options.listen is not None:
        if not options.listen.rpartition(":")[2].isdecimal() or ":" not in options.listen:
            raise ConfigError(f"--listen: {options.listen!r} is not HOST:PORT, as in 127.0.0.1:9092")
        flags["listeners"] = f"PLAINTEXT://{options.listen}"
    if options.data_dir is not None:
        flags["log.dirs"] = options.data_dir
    if options.workers is not None:
        flags["tenure.workers"] = options.workers
    if options.http is not None:
        flags["tenure.http"] = options.http
    if options.log_format is not None:
        flags["tenure.log.format"] = options.log_format
    properties = ""
    if options.config is not None:
        try:
            properties = options.config.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"--config: {options.config}: {getattr(error, 'strerror', None) or error}") from error
    return load(
        flags=flags,
        sets=options.set,
        environment=os.environ,
        properties=properties,
        file_name=str(options.config or ""),
    )


def ready_line(addresses: Iterable[tuple[str, int]], node_ids: Iterable[int], data_dir: str) -> str:
    """What scripts and tests wait for."""
    listen = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in addresses)
    return f"ready listen={listen} node={','.join(map(str, node_ids))} data={data_dir}"
