"""The demo as a command: `make demo` runs `python -m examples.demo`.

House rule: the demo leaves no process and no file behind, however it ends.
"""

from __future__ import annotations

import importlib.util
import signal
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import NoReturn

import typer

from coordinator.cli.exit_codes import ExitCode, fail
from coordinator.cli.options import Command, Commands, OutputForm
from coordinator.cli.output import Output, print_json
from coordinator.client.client import Client
from coordinator.client.errors import ClientError
from coordinator.client.topics import create_topic
from examples.demo.consumer import HEARTBEAT_INTERVAL_MS, SESSION_TIMEOUT_MS
from examples.demo.display import Figures, display, summary
from examples.demo.processes import DemoFailed, Server
from examples.demo.roll import ACTS, DOWN_S, KILL_AFTER, PARTITION_COUNT, WORKERS, Roll
from examples.demo.standby import Standby
from examples.demo.standby import summary as losses_text

TOPIC = "orders"
DELAY_MS = "1000"
SETTINGS = {
    "group.initial.rebalance.delay.ms": DELAY_MS,
    "group.consumer.min.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "group.consumer.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "group.consumer.min.heartbeat.interval.ms": str(HEARTBEAT_INTERVAL_MS),
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_INTERVAL_MS),
}
"""The coordinator's settings that differ from the defaults: all five consumers arrive within a second, and members of
the consumer protocol have the same times as the others."""
ANSWER_WITHIN_S = 10.0

app = typer.Typer(cls=Commands, name="demo", pretty_exceptions_enable=False)


@app.callback(invoke_without_command=True, subcommand_metavar="")
def demo(context: typer.Context, output: OutputForm = Output.TABLE) -> None:
    """Restart five consumers, static, dynamic, and in the consumer protocol, and kill the coordinator: what moves?"""
    _prepare()
    if context.invoked_subcommand is None:
        roll(output)


@app.command("standby", cls=Command)
def standby_(output: OutputForm = Output.TABLE) -> None:
    """Kill one of five consumers, beside a standby (target.group.size) and without: what do the others notice?"""
    with tempfile.TemporaryDirectory(prefix="tenure-demo-") as folder:
        server = Server(Path(folder), SETTINGS)
        try:
            with display(sys.stderr) as shown, server:
                server.start()
                with Client(server.bootstrap, ANSWER_WITHIN_S, client_id="tenure-demo") as client:
                    create_topic(client, TOPIC, PARTITION_COUNT)
                    losses = [
                        Standby(server, client, TOPIC, Path(folder), shown, seats=seats).play()
                        for seats in (True, False)
                    ]
                server.stop()
        except (DemoFailed, ClientError) as error:
            print(server.log.tail(), file=sys.stderr)
            fail(ExitCode.UNREACHABLE, str(error))
    if output is Output.JSON:
        print_json([asdict(loss) for loss in losses])
    else:
        print(f"\n{losses_text(losses)}\n")
    if losses[0].rebalances or losses[0].moved:
        fail(ExitCode.FINDINGS, f"the loss beside a standby caused {losses[0].rebalances} rebalances")


def _prepare() -> None:
    """End with a reason if the consumers can't run; and end through every `with`."""
    if importlib.util.find_spec("confluent_kafka") is None:
        fail(
            ExitCode.USAGE,
            "the demo's consumers need confluent-kafka, which isn't installed: `make demo` in a clone installs it",
        )
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, _end)


def roll(output: Output) -> None:
    """Play the rolling restarts."""
    with tempfile.TemporaryDirectory(prefix="tenure-demo-") as folder:
        server = Server(Path(folder), SETTINGS)
        try:
            acts = _play(server, Path(folder))
        except (DemoFailed, ClientError) as error:
            print(server.log.tail(), file=sys.stderr)
            fail(ExitCode.UNREACHABLE, str(error))
    if output is Output.JSON:
        print_json([asdict(act) for act in acts])
    else:
        print(f"\n{summary(acts)}\n")
    for act, figures in zip(ACTS, acts, strict=True):
        if act.static and not figures.moved_nothing:
            fail(
                ExitCode.FINDINGS,
                f"the roll ({figures.kind}) caused {figures.rebalances} rebalances and left "
                f"{figures.unchanged} of {figures.partitions} assignments unchanged",
            )


def _play(server: Server, folder: Path) -> list[Figures]:
    """Play all acts on one coordinator."""
    with display(sys.stderr) as shown, server:
        shown.chapter(
            f"a rolling restart of {len(WORKERS)} consumers, each down for {DOWN_S} s; "
            f"after {KILL_AFTER} of them the coordinator is killed (SIGKILL)\n"
            f"coordinator: group.initial.rebalance.delay.ms={DELAY_MS}\n"
            f"consumers:   confluent-kafka, session.timeout.ms={SESSION_TIMEOUT_MS}, "
            f"heartbeat.interval.ms={HEARTBEAT_INTERVAL_MS} (or group.consumer.* of the coordinator)"
        )
        server.start()
        with Client(server.bootstrap, ANSWER_WITHIN_S, client_id="tenure-demo") as client:
            create_topic(client, TOPIC, PARTITION_COUNT)
            acts = [Roll(server, client, TOPIC, folder, shown, act).play() for act in ACTS]
        server.stop()
    return acts


def _end(_signal: int, _frame: FrameType | None) -> NoReturn:
    """End the demo through every `with`; a background shell may have set SIGINT to be ignored."""
    raise KeyboardInterrupt
