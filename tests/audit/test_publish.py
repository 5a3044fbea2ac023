"""What is told of a result is the same for every way to run the audit."""

from __future__ import annotations

import io
from pathlib import Path

from coordinator.audit.audit import AuditResult
from coordinator.audit.publish import publish


def test_report_summary_and_page(tmp_path: Path) -> None:
    """The report is printed, and the page's path behind it; without a folder there is the report alone."""
    stream = io.StringIO()
    publish(AuditResult("log"), tmp_path / "out", stream)
    assert stream.getvalue().splitlines()[-1] == str(tmp_path / "out" / "report.html")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["report.html", "summary.json"]
    alone = io.StringIO()
    publish(AuditResult("log"), None, alone)
    assert stream.getvalue().startswith(alone.getvalue())
