"""What is told of an outcome: a report to read, and beside the tables a summary and a page.

House rule: the same for every way to run the audit.
"""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

from coordinator.audit.audit import Outcome
from coordinator.audit.show.page import write_page
from coordinator.audit.show.report import print_to
from coordinator.audit.show.summary import write_summary


def publish(outcome: Outcome, out: Path | None, stream: TextIO) -> None:
    """Print the report, and write what belongs beside the tables below `out`. Raises OSError."""
    print_to(stream, outcome)
    if out is not None:
        write_summary(out, outcome)
        stream.write(f"{write_page(out, outcome)}\n")
