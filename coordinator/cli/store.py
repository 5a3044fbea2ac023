"""`tenure store`: commands on the etcd of a cluster, and how a command reaches it.

`restore` makes a cluster safe after etcd was restored from a snapshot: no node that ran before the restore can write
any more (log/etcd/moving.py).

House rule: settings of the store are those of the server; a command needs no node.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import uuid4

from coordinator.cli.exit_codes import ExitCode, fail
from coordinator.cli.options import Command, commands, option
from coordinator.text import several

if TYPE_CHECKING:
    from coordinator.config import Config
    from coordinator.log.etcd.client import Access

app = commands("Restore the store of a cluster.")

Settings = Annotated[list[str] | None, option("--set", "NAME=VALUE", "A setting by Kafka's name, as for the server.")]
ConfigFile = Annotated[Path | None, option("--config", "FILE", "The server's settings, as a Java properties file.")]


def server_config(
    settings: list[str], config_file: Path | None, flags: Mapping[str, tuple[str, str]] | None = None
) -> Config:
    """The settings that the server would take; a wrong one ends the command. flags: as of `load`."""
    from coordinator.config import ConfigError, load

    try:
        properties = config_file.read_text(encoding="latin-1") if config_file else ""  # as `serve` does
        return load(
            flags=flags,
            sets=settings,
            environment=os.environ,
            properties=properties,
            file_name=str(config_file or ""),
        )[0]
    except ConfigError as error:
        fail(ExitCode.USAGE, str(error))
    except OSError as error:
        fail(ExitCode.USAGE, f"--config: {config_file}: {error.strerror}")


def store_config(
    store: str | None, cluster: str | None, settings: list[str], config_file: Path | None
) -> tuple[Config, Access]:
    """The settings for a command on a cluster, and how to reach its etcd; or the end of the command."""
    from coordinator.config import ConfigError
    from coordinator.log.store import EXTRA_MISSING, etcd_access

    # A command is no node, but the settings of a node need an id.
    flags = {"node.id": ("--node-id", "0")}
    flags |= {} if store is None else {"tenure.store": ("--store", store)}
    flags |= {} if cluster is None else {"tenure.cluster": ("--cluster", cluster)}
    config = server_config(settings, config_file, flags)
    if not config.store:
        fail(ExitCode.USAGE, "--store: etcd://HOST:PORT,... is missing")
    try:
        return config, etcd_access(config)
    except ConfigError as error:
        fail(ExitCode.USAGE, str(error))
    except ImportError as error:
        fail(ExitCode.USAGE, f"{EXTRA_MISSING} ({error})")


@app.command("restore", cls=Command)
def restore_command(
    store: Annotated[str | None, option("--store", "etcd://HOST:PORT,...", "The etcd that was restored.")] = None,
    cluster: Annotated[str | None, option("--cluster", "NAME", "The name of the cluster.")] = None,
    settings: Settings = None,
    config_file: ConfigFile = None,
) -> None:
    """Fence all nodes that ran before etcd was restored from a snapshot; run it before a node starts."""
    config, access = store_config(store, cluster, settings or [], config_file)
    from coordinator.log.engine import EngineError
    from coordinator.log.etcd.moving import EPOCHS, Mover

    try:
        with Mover(access, config.cluster, lambda: uuid4().hex) as mover:
            done = mover.restored()
    except EngineError as error:
        fail(ExitCode.USAGE, str(error))
    print(
        f"cluster {config.cluster} is restored: the epochs of {several(done.partitions, 'partition')} are raised by "
        f"{EPOCHS:,}, {several(done.leases, 'lease')} of nodes ended"
    )
