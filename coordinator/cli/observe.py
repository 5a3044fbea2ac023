"""`tenure observe`: finds out what happens to the groups of any Kafka cluster, and serves the page of a server.

When the cluster has answered and HTTP accepts requests, it prints one line on standard output: `ready
observes=HOST:PORT[,...] http=HOST:PORT`. Log lines go to standard error. It runs until SIGTERM or SIGINT; that is its
ordinary end. If no cluster answers at the start, it ends with exit code 5, except with --wait. A cluster that goes away
later doesn't end it: a line says so.

Settings of HTTP (tenure.http.*), log lines and metrics come from `--set` and the environment, as for `tenure serve`.

House rule: this module knows nothing of groups.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from coordinator.cli.cluster import (
    DEFAULT_BOOTSTRAP_SERVER,
    BootstrapServer,
    CommandConfig,
    Timeout,
    cluster,
    named_cluster,
)
from coordinator.cli.exit_codes import ExitCode, fail
from coordinator.cli.options import flag, option, seconds
from coordinator.client.client import TIMEOUT
from coordinator.config import HTTP, ConfigError, load
from coordinator.observe.observer import CannotListen, Observer, Options, observe
from coordinator.observe.published import TOPIC
from coordinator.observe.watching import LOOK_S
from coordinator.observe.webhook import FORMS

DEFAULT_HTTP = "127.0.0.1:8080"
OWN_SETTINGS = ("tenure.http", "tenure.log.format", "tenure.metrics.groups.max")
"""The settings that an observer has, and all that begin like these."""
SETTINGS_TEXT = "tenure.http.*, tenure.log.format and tenure.metrics.groups.max"


def command(
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    http: Annotated[
        str, option("--http", "HOST:PORT", 'The address of the page, JSON and metrics; "" for none.')
    ] = DEFAULT_HTTP,
    events: Annotated[
        str,
        option(
            "--events",
            "FILE|topic",
            "Write each event into a file, one JSON object a line, or into the topic __rebalance_events.",
        ),
    ] = "",
    broker_log: Annotated[
        list[Path] | None,
        option(
            "--broker-log",
            "FILE",
            "A broker's server.log, whose lines name the causes of the groups that it coordinates; repeatable.",
        ),
    ] = None,
    look_every: Annotated[
        float, option("--look-every", "SECONDS", "The time between two looks at how far a group is, at least.", seconds)
    ] = LOOK_S,
    webhook: Annotated[
        str,
        option(
            "--webhook",
            "URL",
            "Post findings about progress when they begin and end, and rebalances when they are over.",
        ),
    ] = "",
    webhook_form: Annotated[
        str, option("--webhook-form", "json|slack", "The form of a post: an event, or Slack's.")
    ] = "json",
    webhook_secret_file: Annotated[
        Path | None, option("--webhook-secret-file", "FILE", "A file with the secret that signs each post.")
    ] = None,
    sets: Annotated[list[str] | None, option("--set", "NAME=VALUE", f"A setting: {SETTINGS_TEXT}; repeatable.")] = None,
    wait: Annotated[
        bool, flag("--wait", "Wait for a cluster that doesn't answer yet; without it: exit code 5.")
    ] = False,
    timeout: Timeout = None,
) -> None:
    """Show why the groups of any Kafka cluster rebalance, until Ctrl-C.

    The observer reads the cluster's own log of groups, and changes nothing there, except for `--events topic`.
    """
    where = named_cluster(bootstrap_server, command_config)
    timeout_s = timeout or (where.security and where.security.timeout_s) or TIMEOUT
    try:
        config, warnings = load(flags={"tenure.http": ("--http", http)}, sets=sets or [], environment=os.environ)
        for name in (each.partition("=")[0].strip() for each in sets or []):
            if not name.startswith(OWN_SETTINGS):
                fail(ExitCode.USAGE, f"--set {name}: an observer has no such setting, only {SETTINGS_TEXT}")
        if config.has_tls(HTTP):
            fail(ExitCode.USAGE, "tenure.http.ssl.*: an observer's HTTP has no TLS; put a proxy in front of it")
        if events not in {"", TOPIC} and not Path(events).absolute().parent.is_dir():
            fail(ExitCode.USAGE, f"--events: there is no folder {Path(events).parent}")
        posts = webhook, webhook_form, _checked_secret(webhook, webhook_form, webhook_secret_file)
        if not wait:
            with cluster(bootstrap_server, timeout, security=where.security) as client:
                client.nodes()
        options = Options(where, timeout_s, config, events, tuple(broker_log or ()), look_every, *posts)
        observe(options, warnings, lambda observer: print(ready_line(bootstrap_server, observer), flush=True))
    except ConfigError as error:
        name, _, problem = str(error).partition(": ")
        fail(ExitCode.USAGE, f"--http: {problem}" if name == "tenure.http" else str(error))
    except CannotListen as error:
        fail(ExitCode.USAGE, f"--http: {error}")


def _checked_secret(url: str, form: str, file: Path | None) -> bytes:
    """Check the webhook's options; returns its secret."""
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and url.isascii() and " " not in url
    except ValueError:
        is_usable = False
    if url and not is_usable:
        fail(ExitCode.USAGE, "--webhook: it is no URL of http or https")
    if form not in FORMS:
        fail(ExitCode.USAGE, f"--webhook-form: {form!r} is none of {', '.join(FORMS)}")
    if file is None:
        return b""
    try:
        secret = file.read_bytes().strip()
    except OSError as error:
        fail(ExitCode.USAGE, f"--webhook-secret-file: {file}: {error.strerror}")
    if not secret:
        fail(ExitCode.USAGE, f"--webhook-secret-file: {file} is empty")
    return secret


def ready_line(bootstrap_server: str, observer: Observer) -> str:
    """The line that scripts and tests wait for."""
    at = "" if observer.address is None else f" http={observer.address}"
    return f"ready observes={bootstrap_server}{at}"
