"""`tenure seat run`: runs a program under a name of a pool that no other program has at that time.

House rule: this module only reads options; coordinator.seats has the work.
"""

from __future__ import annotations

import shutil
import socket
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from coordinator.cli.cluster import DEFAULT_BOOTSTRAP_SERVER, BootstrapServer, CommandConfig, named_cluster
from coordinator.cli.exit_codes import ExitCode, fail
from coordinator.cli.kubernetes import Kubeconfig, check_kubeconfig, fail_without_extra, own_namespace, say
from coordinator.cli.options import Command, argument, commands, flag, option, seconds

if TYPE_CHECKING:
    from coordinator.seats.run import Lease

app = commands("Run a program under a leased name.")

GRACE_SHARE_MAX = 0.6
"""The part of a session that a program may have for its end: the rest is for renewals that come late."""


@app.command("run", cls=Command)
def run_command(
    command: Annotated[list[str], argument("PROGRAM", "The program and its arguments, behind --.")],
    pool: Annotated[str, option("--pool", "NAMES", "The names: orders-[0..7], or several with commas.")],
    variable: Annotated[
        str, option("--variable", "NAME", "The program's environment variable for the name.")
    ] = "GROUP_INSTANCE_ID",
    identity: Annotated[
        str, option("--identity", "TEXT", "The same text after a restart gets the same name; by default the host name.")
    ] = "",
    kubernetes: Annotated[bool, flag("--kubernetes", "Lease names by Leases of Kubernetes, not by a group.")] = False,
    namespace: Annotated[str, option("--namespace", "NAMESPACE", "Of the Leases; by default the pod's own.")] = "",
    kubeconfig: Kubeconfig = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    group: Annotated[str, option("--group", "GROUP", "The group of the lease; by default from the pool's name.")] = "",
    session: Annotated[
        float, option("--session", "SECONDS", "After it, the name of a program that is lost is free.", seconds)
    ] = 30.0,
    grace: Annotated[float, option("--grace", "SECONDS", "From SIGTERM to SIGKILL, at a lost lease.", seconds)] = 10.0,
    wait: Annotated[bool, flag("--wait/--no-wait", "Wait for a name, or end with exit code 1 if none is free.")] = True,
) -> None:
    """Run a program under a name that no other program of the pool has.

    It gets SIGTERM, and SIGKILL later, before its name can go to another one. Its environment has TENURE_SEAT_TOKEN,
    which grows with each holder of a name. Its exit code is the command's.
    """
    from coordinator.seats.membership import SESSION_MAX_S
    from coordinator.seats.pool import NAME_MAX, group_of, names_of
    from coordinator.seats.run import Options, run
    from coordinator.seats.supervisor import Why

    try:
        names = names_of(pool)
    except ValueError as error:
        fail(ExitCode.USAGE, f"--pool: {error}")
    if session > SESSION_MAX_S:
        fail(ExitCode.USAGE, f"--session: {session:g} s is more than a day")
    if not variable or "=" in variable:
        fail(ExitCode.USAGE, f"--variable: {variable!r} is no name of a variable")
    if grace > session * GRACE_SHARE_MAX:
        fail(ExitCode.USAGE, f"--grace: {grace:g} s is more than {GRACE_SHARE_MAX:.0%} of --session ({session:g} s)")
    if shutil.which(command[0]) is None:
        fail(ExitCode.USAGE, f"there is no program {command[0]}")
    identity = identity or socket.gethostname()
    if len(identity) > NAME_MAX:
        fail(ExitCode.USAGE, f"--identity: more than {NAME_MAX} characters")
    make_lease: Callable[[], Lease]
    if kubernetes:
        namespace = namespace or own_namespace()
        make_lease, giver = _kubernetes(names, identity, session, namespace, kubeconfig), f"namespace {namespace}"
    else:
        from coordinator.seats.group_lease import GroupLease

        cluster, group = named_cluster(bootstrap_server, command_config), group or group_of(pool)
        make_lease, giver = partial(GroupLease, cluster, group, pool, identity, session), f"group {group}"

    ended = run(Options(command, variable, session, grace, wait), make_lease, say)
    if ended.why is Why.NO_NAME:
        fail(ExitCode.FINDINGS, f"no name of {pool} could be had at once from {giver}")
    if ended.why is Why.REFUSED:
        fail(ExitCode.REFUSED, f"no name of {pool} can be had from {giver}")
    if ended.why is Why.LOST:
        fail(ExitCode.UNREACHABLE, "the lease was lost")
    sys.exit(ended.code)


def _kubernetes(
    names: tuple[str, ...], identity: str, session: float, namespace: str, kubeconfig: Path | None
) -> Callable[[], Lease]:
    """The lease by Leases of Kubernetes; a wrong option ends the command."""
    try:
        from coordinator.seats.kubernetes_lease import KubernetesLease
    except ImportError as error:
        fail_without_extra(error)
    check_kubeconfig(kubeconfig)
    return partial(KubernetesLease, kubeconfig, namespace, names, identity, session)
