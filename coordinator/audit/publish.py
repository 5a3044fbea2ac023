"""Publishes a result: a report to read, and beside the tables a summary and a page.

House rule: the same for every way to run the audit.
"""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

from coordinator.audit.audit import AuditResult
from coordinator.audit.show.page import write_page
from coordinator.audit.show.report import print_to
from coordinator.audit.show.summary import write_summary


def publish(result: AuditResult, out: Path | None, stream: TextIO) -> None:
    """Print the report, and write summary and page below `out`. Raises OSError."""
    print_to(stream, result)
    if out is not None:
        write_summary(out, result)
        stream.write(f"{write_page(out, result)}\n")
