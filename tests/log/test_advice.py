"""Tests of what the server says about a file of its folder that it can't use."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from coordinator.log.advice import advice, explain
from coordinator.log.engine import Damaged
from coordinator.log.files import not_regular

NAMES = {
    "meta.properties": "new cluster id",
    "topics.json": "topics, ACLs",
    ".journal-12.0": ".journal-12.*",
    ".journal-left-7.3": ".journal-left-7.*",
    ".journal-left-__transaction_state-7.3": ".journal-left-__transaction_state-7.*",
    ".lock": "remove it",
    ".lock-7": "remove it",
    ".lock-__transaction_state-7": "remove it",
    ".producer-ids": "remove it",
    ".journal-1.0.new": "remove it",
    "__consumer_offsets-7": "folder back",
    f"{0:020}.log": "folder back",
    f"{0:020}-{5:020}.swap": "folder back",
    f"{0:020}.cleaned": "remove it",
    "partition.metadata": "this partition's folder",
    "cleaner-offset-checkpoint": "this partition's folder",
}


@pytest.mark.parametrize("name", NAMES)
def test_each_file_has_its_advice(name: str) -> None:
    """Each file of a data folder has an advice that fits it; a foreign file has none."""
    assert NAMES[name] in advice(Path("data", name))
    assert advice(Path("data", f"my{name}".replace("-", "."))) == ""


def test_advice_is_for_what_a_person_has_to_mend() -> None:
    """Damage, a thing in the way and missing rights have an advice; a disk that fails or is full has none."""
    path = Path("data/.lock-7")
    assert explain(Damaged(str(path), 3, "it is odd")).startswith(f"{path} at byte 3: it is odd; nothing that was")
    assert explain(not_regular(path, "a fifo")).startswith(f"a fifo, where a file belongs: {path}; nothing that was")
    assert explain(PermissionError(errno.EACCES, "Permission denied", str(path))) == (
        f"Permission denied: {path}; give the user that the server runs as (uid {os.geteuid()}) the right to it"
    )
    assert explain(OSError(errno.ENOSPC, "No space left on device", str(path))) == f"No space left on device: {path}"
    assert explain(OSError(errno.EIO, "Input/output error")) == "Input/output error"
