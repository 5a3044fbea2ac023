"""Every way to run the audit publishes its result in the same way."""

from __future__ import annotations

import io
from pathlib import Path

from coordinator.audit.audit import AuditResult
from coordinator.audit.publish import publish


def test_report_summary_and_page(tmp_path: Path) -> None:
    """The command prints the report and then the page's path; without a folder it prints the report alone."""
    stream = io.StringIO()
    publish(AuditResult("log"), tmp_path / "out", stream)
    assert stream.getvalue().splitlines()[-1] == str(tmp_path / "out" / "report.html")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["report.html", "summary.json"]
    alone = io.StringIO()
    publish(AuditResult("log"), None, alone)
    assert stream.getvalue().startswith(alone.getvalue())
