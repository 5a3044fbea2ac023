"""`tenure seats`: frees the seats of pods that are gone for good, on any Kafka, until SIGTERM or SIGINT.

Without `--free` it says what it would free, and frees nothing. When it has read all sets and pods, it prints one line
on standard output: `ready observes=HOST:PORT[,...] frees=false`. Decisions go to standard error, one line each.

House rule: this module only reads options; coordinator.seats has the work.
"""

from __future__ import annotations

import socket
from typing import Annotated
from uuid import uuid4

from coordinator.cli.cluster import (
    DEFAULT_BOOTSTRAP_SERVER,
    BootstrapServer,
    CommandConfig,
    Timeout,
    named_cluster,
    refusal,
)
from coordinator.cli.exit_codes import ExitCode, fail
from coordinator.cli.kubernetes import Kubeconfig, check_kubeconfig, fail_without_extra, own_namespace, say
from coordinator.cli.options import flag, option
from coordinator.client.client import TIMEOUT
from coordinator.client.errors import Unauthenticated
from coordinator.config import ConfigError, load


def command(
    free: Annotated[bool, flag("--free", "Free seats; without it only say which.")] = False,
    namespace: Annotated[str, option("--namespace", "NAMESPACE", "Follow this namespace alone; without it: all.")] = "",
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    kubeconfig: Kubeconfig = None,
    lease: Annotated[
        str, option("--lease", "[NAMESPACE/]NAME", "Of several controllers, the holder of this Lease acts.")
    ] = "tenure-seats",
    any_host: Annotated[
        bool, flag("--any-host", "Free seats of members whose address isn't their pod's: behind a NAT.")
    ] = False,
    http: Annotated[str, option("--http", "HOST:PORT", "Serve /metrics, /healthz and /readyz here.")] = "",
    timeout: Timeout = None,
) -> None:
    """Free the seats of static members whose pods are gone for good, in Kubernetes.

    A pod's annotations tenure.dev/group and tenure.dev/instance-id name its seat. The command frees it when the
    StatefulSet wants fewer replicas and the pod has ended.
    """
    where = named_cluster(bootstrap_server, command_config)
    check_kubeconfig(kubeconfig)
    listening = _listening(http)
    try:
        from coordinator.seats.api import ApiError
        from coordinator.seats.controller import Options, run
    except ImportError as error:
        fail_without_extra(error)
    lease_namespace, _, lease_name = lease.rpartition("/")
    options = Options(
        namespace=namespace,
        identity=f"{socket.gethostname()}-{uuid4().hex[:8]}",
        lease=(lease_namespace or namespace or own_namespace(), lease_name),
        timeout=timeout or (where.security and where.security.timeout_s) or TIMEOUT,
        frees=free,
        any_host=any_host,
    )
    ready = f"ready observes={bootstrap_server} frees={str(free).lower()}"

    def on_ready(at: str) -> None:
        print(f"{ready} http={at}" if at else ready, flush=True)

    try:
        run(where, kubeconfig, options, listening, say, on_ready)
    except ApiError as error:
        fail(ExitCode.UNREACHABLE, str(error))
    except Unauthenticated as error:
        fail(ExitCode.REFUSED, refusal(error))


def _listening(http: str) -> socket.socket | None:
    """A socket for HTTP; a wrong address ends the command."""
    try:
        # Counts of seats are no secret, and in a pod others read them.
        config, _ = load(flags={"tenure.http": ("--http", http)}, sets=["tenure.http.allow.anonymous=true"])
    except ConfigError as error:
        fail(ExitCode.USAGE, f"--http: {str(error).partition(': ')[2]}")
    if not config.http:
        return None
    address = config.http[0].host, config.http[0].port
    try:
        family = socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        return socket.create_server(address, family=family)
    except OSError as error:
        fail(ExitCode.USAGE, f"--http: {config.http[0].address}: {error.strerror or error}")
