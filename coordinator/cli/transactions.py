"""`tenure transactions`: list and describe transactions, and find and abort those that hang, on Tenure or Kafka.

A transaction hangs if it is open in a topic partition, and no coordinator will end it there: `client/transactions.py`.
`abort` writes the marker that is missing. It aborts only what hangs, unless `--start-offset` names what is open.

House rule: a dry run aborts nothing.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated

from coordinator.cli.cluster import DEFAULT_BOOTSTRAP_SERVER, BootstrapServer, CommandConfig, Timeout, cluster, refusal
from coordinator.cli.exit_codes import ExitCode, end, fail
from coordinator.cli.options import Command, OutputForm, argument, commands, flag, minutes, names_or_all, option
from coordinator.cli.output import Output, show
from coordinator.client.transactions import (
    OpenTransaction,
    Transaction,
    abort,
    hanging_transactions,
    list_transactions,
    open_transactions,
)
from coordinator.text import iso_text

OLDER_THAN_MIN = 15.0
"""The longest timeout of a transaction by default (transaction.max.timeout.ms): a younger one may still be ended."""

LIST_COLUMNS = ("TRANSACTIONAL-ID", "COORDINATOR", "PRODUCER-ID", "TRANSACTION-STATE")
DESCRIBE_COLUMNS = (
    "TRANSACTIONAL-ID",
    "COORDINATOR",
    "PRODUCER-ID",
    "PRODUCER-EPOCH",
    "TRANSACTION-STATE",
    "TIMEOUT-MS",
    "START-TIME",
    "TOPIC-PARTITIONS",
)
OPEN_COLUMNS = (
    "TOPIC",
    "PARTITION",
    "PRODUCER-ID",
    "PRODUCER-EPOCH",
    "COORDINATOR-EPOCH",
    "START-OFFSET",
    "LAST-TIMESTAMP",
)

app = commands("List and describe transactions, and abort those that hang.")

Topics = Annotated[list[str] | None, option("--topic", "TOPIC", "Only this topic; may be repeated.")]
OlderThan = Annotated[
    float, option("--older-than", "MINUTES", "Only where the producer has written nothing for so long.", minutes)
]


@app.command("list", cls=Command)
def list_command(
    state: Annotated[
        list[str] | None, option("--state", "STATE", "Only ids in this state, such as Ongoing; may be repeated.")
    ] = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    output: OutputForm = Output.TABLE,
    timeout: Timeout = None,
) -> None:
    """List the transactional ids, with the states of their transactions."""
    with cluster(bootstrap_server, timeout, command_config) as client:
        found = [each for each in list_transactions(client) if not state or each.state in state]
    rows = [(each.transactional_id, each.coordinator_id, each.producer_id, each.state) for each in found]
    show(output, list(map(_json, found)), LIST_COLUMNS, rows)


@app.command("describe", cls=Command)
def describe_command(
    transactional_ids: Annotated[list[str], argument("ID", "A transactional id, or several.")],
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    output: OutputForm = Output.TABLE,
    timeout: Timeout = None,
) -> None:
    """Show the transactions of some transactional ids."""
    with cluster(bootstrap_server, timeout, command_config) as client:
        known = {each.transactional_id: each for each in list_transactions(client)}
    found = [known[each] for each in dict.fromkeys(transactional_ids) if each in known]
    show(output, list(map(_json, found)), DESCRIBE_COLUMNS, list(map(_described, found)))
    end(
        [
            (ExitCode.NOT_FOUND, f"there is no transactional id {each}")
            for each in transactional_ids
            if each not in known
        ]
    )


@app.command("find-hanging", cls=Command)
def find_hanging_command(
    topic: Topics = None,
    older_than: OlderThan = OLDER_THAN_MIN,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    output: OutputForm = Output.TABLE,
    timeout: Timeout = None,
) -> None:
    """Find the transactions that nobody will end: they hold up readers of committed records or stable offsets."""
    with cluster(bootstrap_server, timeout, command_config) as client:
        found = _old(hanging_transactions(client, topic), older_than)
    _print_open(found, output)
    if found:
        fail(ExitCode.FINDINGS, "`tenure transactions abort --hanging` ends them")


@app.command("abort", cls=Command)
def abort_command(
    topic: Topics = None,
    partition: Annotated[
        int | None, option("--partition", "NUMBER", "The partition of --topic, with --start-offset.")
    ] = None,
    start_offset: Annotated[
        int | None, option("--start-offset", "OFFSET", "Where an open transaction begins, even if it doesn't hang.")
    ] = None,
    hanging: Annotated[bool, flag("--hanging", "All that `find-hanging` finds, in place of --start-offset.")] = False,
    older_than: OlderThan = OLDER_THAN_MIN,
    dry_run: Annotated[bool, flag("--dry-run", "Only show what would be aborted.")] = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    output: OutputForm = Output.TABLE,
    timeout: Timeout = None,
) -> None:
    """Abort hanging transactions in their topic partitions."""
    what = "name the transaction by --topic, --partition and --start-offset"
    names_or_all(what, is_named=start_offset is not None, are_all=hanging, option="--hanging")
    if not hanging and (len(topic or ()) != 1 or partition is None):
        fail(ExitCode.USAGE, what)
    with cluster(bootstrap_server, timeout, command_config) as client:
        if hanging:
            found = _old(hanging_transactions(client, topic), older_than)
        else:
            wanted = partition, start_offset
            found = [each for each in open_transactions(client, topic) if (each.partition, each.start_offset) == wanted]
        errors = [] if dry_run else [abort(client, each) for each in found]
    _print_open(found, output)
    if not hanging and not found:
        fail(ExitCode.NOT_FOUND, f"no open transaction of that partition begins at offset {start_offset}")
    end([(ExitCode.REFUSED, refusal(error)) for error in errors if error])


def _old(found: Sequence[OpenTransaction], older_than_min: float) -> list[OpenTransaction]:
    before_ms = time.time() * 1_000 - older_than_min * 60_000
    return [each for each in found if each.last_ms <= before_ms]


def _described(each: Transaction) -> tuple[object, ...]:
    partitions = ",".join(f"{topic}-{index}" for topic, index in each.partitions)
    return (*each[:6], _time(each.start_ms), partitions)


def _time(at_ms: int) -> str | None:
    return None if at_ms < 0 else iso_text(at_ms)


def _json(each: Transaction) -> dict[str, object]:
    partitions = [{"topic": topic, "partition": index} for topic, index in each.partitions]
    return {**each._asdict(), "start_ms": None if each.start_ms < 0 else each.start_ms, "partitions": partitions}


def _print_open(found: Sequence[OpenTransaction], output: Output) -> None:
    show(
        output,
        [each._asdict() for each in found],
        OPEN_COLUMNS,
        [(*each[:-1], _time(each.last_ms)) for each in found],
    )
