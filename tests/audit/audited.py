"""The audit of a log in the tests' own process."""

from __future__ import annotations

from pathlib import Path

from coordinator.audit.audit import AuditResult, Options, audit


def audited(log: Path, out: Path | None = None, options: Options | None = None) -> AuditResult:
    """Audit a log; nobody is told how far it is."""
    return audit(log, out, options or Options(), lambda _done: None)
