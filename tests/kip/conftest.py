"""The tests of clauses have the coordinators of the group's tests."""

from __future__ import annotations

from tests.group.conftest import bench, play

__all__ = ["bench", "play"]
