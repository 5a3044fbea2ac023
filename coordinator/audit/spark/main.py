"""The audit as a program for spark-submit; docs/audit.md has the commands.

    spark-submit --py-files tenure.zip coordinator/audit/spark/main.py DATA_DIR --out DIR

Exit codes are those of `tenure audit`: 0 nothing found, 1 findings, 2 it could not run.

House rule: only what the zip has is imported; the session is spark-submit's.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from coordinator.audit.audit import NothingRead, Options, Outcome
from coordinator.audit.logs import look
from coordinator.audit.page import write_page
from coordinator.audit.report import print_to
from coordinator.audit.spark.job import audit_folder
from coordinator.audit.spark.live import audit_cluster
from coordinator.audit.spark.session import make_session
from coordinator.audit.summary import write_summary


def main(arguments: Sequence[str]) -> int:
    """Run it; returns the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("path", metavar="DATA_DIR", type=Path, nargs="?")
    parser.add_argument("--bootstrap-server", metavar="HOST:PORT")
    parser.add_argument("--before", metavar="DIR", type=Path)
    parser.add_argument("--out", metavar="DIR", type=Path, required=True)
    given = parser.parse_args(arguments)
    if (given.path is None) == (given.bootstrap_server is None):
        parser.error("either DATA_DIR or --bootstrap-server")
    session = None
    try:
        # What can't be read is said before Spark is started for it.
        if given.path is not None:
            look(given.path)
        session = make_session(None, kafka=given.path is None)
        outcome = _audit(session, given, Options(before=given.before))
        write_summary(given.out, outcome)
        write_page(given.out, outcome)
    except (NothingRead, OSError) as error:
        sys.stderr.write(f"tenure audit: {error}\n")
        return 2
    finally:
        if session is not None:
            session.stop()
    print_to(sys.stdout, outcome)
    return 1 if outcome.findings else 0


def _audit(session: SparkSession, given: argparse.Namespace, options: Options) -> Outcome:
    if given.path is not None:
        return audit_folder(session, given.path, given.out, options)
    return audit_cluster(session, given.bootstrap_server, given.out, options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
