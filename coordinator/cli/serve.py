"""`tenure serve`: run a coordinator until SIGTERM or SIGINT.

When the server accepts requests it prints one line on standard output: `ready listen=HOST:PORT[,...] node=ID[,...]
data=DIR`. Log lines go to standard error. If the server can't start, for example because of a wrong setting, it prints
one line there and ends with exit code 2.

With `--control` the server is the test kit's (docs/test/other-languages.md); that line then ends with its control's
address.

argparse reads the options. The import of typer would take longer than the rest of a start, and test suites wait for
each start.

House rule: this module imports nothing that a server doesn't need.
"""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterable, Sequence
from itertools import starmap
from pathlib import Path

from coordinator import pages
from coordinator.cli.exit_codes import ExitCode, fail
from coordinator.config import PORT_MAX, Config, ConfigError, load
from coordinator.server.app import StartFailed
from coordinator.server.process import run
from coordinator.text import address_text

IN_MEMORY = "(memory)"
"""In the ready line, in place of a data folder."""

EPILOG = f"""\
Settings come from the options, then --set, TENURE_NAME and KAFKA_NAME in the environment, and FILE.
The ten to start with, with their defaults; {pages.SETTINGS} has all:
  tenure.topics                       topics that exist from the start, as in orders:12,payments:3
  advertised.listeners                the address that clients get, if it differs from --listen
  group.min.session.timeout.ms        6000     the shortest session timeout that a consumer may ask for
  group.max.session.timeout.ms        1800000  the longest, and so how long a seat may wait for its member
  group.initial.rebalance.delay.ms    3000     how long a first rebalance waits for more members
  group.max.size                      no limit on the members of a group
  group.consumer.session.timeout.ms   45000    the session timeout in the consumer protocol
  offsets.retention.minutes           10080    how long offsets of a group without members stay
  message.max.bytes                   1048588  the largest record; it bounds the members of a group
  super.users                         users that no ACL stops, as in User:admin

Example: tenure serve --listen 127.0.0.1:9092 --set tenure.topics=orders:12 --http 127.0.0.1:8080

Exit codes: 0 ended by a signal, 1 the log couldn't be written, 2 a wrong option or setting, or the start failed."""

WORKERS = "processes that share the work, each at a port of its own, from PORT on; by default 1"
FLAGS = (
    ("--data-dir", "DIR", "log.dirs", "the folder for everything that is kept, by default ./data"),
    ("--workers", "N", "tenure.workers", WORKERS),
    ("--store", "etcd://HOST:PORT,...", "tenure.store", "keep groups in etcd, as one node of a cluster"),
    ("--cluster", "NAME", "tenure.cluster", "the name of the cluster in --store"),
    ("--node-id", "N", "node.id", "the id of this node, its own in the cluster"),
    ("--http", "HOST:PORT", "tenure.http", "where to show metrics, health, groups and a page over HTTP"),
    ("--control", "HOST:PORT", "tenure.control", "where tests move time, plan faults and look at groups over HTTP"),
    ("--log-format", "text|json", "tenure.log.format", "how to log, by default as text"),
)
"""The flags that give a setting as it is, each with the form of its text, the setting, and words for the help."""

Flags = dict[str, tuple[str, str]]
"""A setting's name -> the flag that gives it, and the text."""


def serve(arguments: Sequence[str]) -> None:
    """Run the server; `arguments` are those behind `serve` on the command line."""
    options = _parser().parse_args(arguments)
    flags: Flags = {}
    try:
        flags = _flags(options)
        config, warnings = _configure(options, flags)
        done = _run(config, warnings)
    except (ConfigError, StartFailed) as error:
        name, _, problem = str(error).partition(": ")
        # An error begins with a setting's name. A user who typed a flag may not know that name.
        fail(ExitCode.USAGE, f"{flags[name][0]}: {problem}" if name in flags else str(error))
    if not done:
        fail(ExitCode.FINDINGS, "the server stopped because it couldn't write its log, see above")


def _run(config: Config, warnings: Sequence[str]) -> bool:
    """Serve, in this process or in several; returns False if the server stopped because it couldn't write its log."""

    def ready(addresses: Iterable[tuple[str, int]], node_ids: Iterable[int]) -> None:
        print(ready_line(addresses, node_ids, config.log_dirs), flush=True)

    if config.control:
        _run_with_control(config, warnings)
        return True
    if config.workers == 1:
        return run(config, warnings, lambda server: ready(server.addresses, [config.node_id]))
    from coordinator.server.supervisor import Supervisor  # a start with one worker doesn't need this module

    Supervisor(config, ready).run(warnings)
    return True


def _run_with_control(config: Config, warnings: Sequence[str]) -> None:
    from coordinator.testing.http.serving import is_on_disk, run  # only a server with control pays for the test kit

    def ready(addresses: Iterable[tuple[str, int]], node_ids: Iterable[int], control: tuple[str, int]) -> None:
        kept = config.log_dirs if is_on_disk(config) else IN_MEMORY
        print(ready_line(addresses, node_ids, kept, control), flush=True)

    run(config, warnings, ready)


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="tenure serve",
        description="Run a coordinator until SIGTERM or SIGINT.",
        epilog=EPILOG,
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--listen", metavar="HOST:PORT", help="where to listen, by default at 127.0.0.1:9092; port 0 picks a free one"
    )
    for flag, metavar, name, text in FLAGS:
        parser.add_argument(flag, metavar=metavar, dest=name, help=text)
    parser.add_argument("--config", metavar="FILE", type=Path, help="settings, as a Java properties file")
    parser.add_argument(
        "--set", metavar="NAME=VALUE", action="append", default=[], help="a setting by Kafka's name; may be repeated"
    )
    return parser


def _flags(options: Namespace) -> Flags:
    """The settings that flags give. Raises ConfigError."""
    flags: Flags = {}
    if options.listen is not None:
        _, colon, port = options.listen.rpartition(":")
        if not colon or not port.isdecimal():
            raise ConfigError(f"--listen: {options.listen!r} is not HOST:PORT, as in 127.0.0.1:9092")
        if int(port) > PORT_MAX:
            raise ConfigError(f"--listen: {options.listen!r}: a port is at most {PORT_MAX}")
        flags["listeners"] = ("--listen", f"PLAINTEXT://{options.listen}")
    for flag, _, name, _ in FLAGS:
        text = getattr(options, name)
        if text is not None:
            flags[name] = (flag, text)
    return flags


def _configure(options: Namespace, flags: Flags) -> tuple[Config, list[str]]:
    properties = ""
    if options.config is not None:
        try:
            properties = options.config.read_text(encoding="latin-1")  # as Java does
        except OSError as error:
            raise ConfigError(f"--config: {options.config}: {error.strerror}") from error
    return load(
        flags=flags,
        sets=options.set,
        environment=os.environ,
        properties=properties,
        file_name=str(options.config or ""),
    )


def ready_line(
    addresses: Iterable[tuple[str, int]],
    node_ids: Iterable[int],
    data_dir: str,
    control: tuple[str, int] | None = None,
) -> str:
    """The line that scripts and tests wait for."""
    listen = ",".join(starmap(address_text, addresses))
    further = "" if control is None else f" control={address_text(*control)}"
    return f"ready listen={listen} node={','.join(map(str, node_ids))}{further} data={data_dir}"
