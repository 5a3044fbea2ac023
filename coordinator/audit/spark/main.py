"""The audit as a program for spark-submit; docs/ask-why/audit.md has the commands.

    spark-submit --py-files tenure.zip coordinator/audit/spark/main.py DATA_DIR --out DIR

Options and exit codes are those of `tenure audit`: 0 nothing found, 1 findings, 2 it could not run.

House rule: only what the zip has is imported; the session is spark-submit's.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from coordinator.audit.audit import NothingRead, Options
from coordinator.audit.check.limits import LIMIT_OPTIONS, add_limit_options, limits_of
from coordinator.audit.read.logs import look
from coordinator.audit.show.page import publish
from coordinator.audit.spark.job import audit_folder
from coordinator.audit.spark.live import audit_cluster
from coordinator.audit.spark.session import spark_session
from coordinator.client.client import Cluster
from coordinator.client.properties import PropertiesError, read_file
from coordinator.client.security import Security


def main(arguments: Sequence[str]) -> int:
    """Run it; returns the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("path", metavar="DATA_DIR", type=Path, nargs="?")
    parser.add_argument("--bootstrap-server", metavar="HOST:PORT")
    parser.add_argument("--command-config", metavar="FILE", type=Path)
    parser.add_argument("--before", metavar="DIR", type=Path)
    parser.add_argument("--out", metavar="DIR", type=Path, required=True)
    add_limit_options(parser)
    given = parser.parse_args(arguments)
    if (given.path is None) == (given.bootstrap_server is None):
        parser.error("either DATA_DIR or --bootstrap-server")
    if given.path is None and (given.before is not None or given.partitions is not None):
        parser.error("--before and --partitions are for DATA_DIR")
    if given.path is not None and given.command_config is not None:
        parser.error("--command-config is for --bootstrap-server")
    options = Options(limits_of({name: getattr(given, name) for name in LIMIT_OPTIONS}), given.before)
    try:
        # Fail before the start of Spark if there is nothing to read.
        security = None if given.command_config is None else Security(read_file(given.command_config))
        if given.path is not None:
            look(given.path)
        with spark_session(None, kafka=given.path is None) as session:
            if given.path is not None:
                result = audit_folder(session, given.path, given.out, options)
            else:
                result = audit_cluster(session, Cluster(given.bootstrap_server, security), given.out, options)
        publish(result, given.out, sys.stdout)
    except (NothingRead, PropertiesError, OSError) as error:
        sys.stderr.write(f"tenure audit: {error}\n")
        return 2
    return 1 if result.findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
