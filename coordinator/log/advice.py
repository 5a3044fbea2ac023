"""Advice for each file of a data folder that can't be used: what was acknowledged in it, and what to do.

House rule: a file has one advice, whatever is wrong with it, and the advice loses nothing that the segments have.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from coordinator.log.engine import Damaged
from coordinator.log.files import needs_a_person
from coordinator.log.segments import disk

REMOVE = "nothing that was acknowledged is in it: stop the server and remove it"

ADVICE = {
    r"\.journal-([0-9]+)\.[01]": (
        "the last 10 s or so of what was acknowledged before a crash may be in it alone. Put it back from a copy of "
        "the folder; or move the files .journal-{0}.* out of the folder, all of them, and serve what the segments have"
    ),
    r"\.journal-left-((?:__transaction_state-)?[0-9]+)\.[0-9]+": (
        "the last of what was acknowledged in partition {0} may be in it alone. Put it back from a copy of the folder; "
        "or move the files .journal-left-{0}.* out of the folder, all of them, and serve what the segments have"
    ),
    r"meta\.properties": (
        "nothing that was acknowledged is in it, but the cluster id. Put it back from a backup; or move it out of the "
        "folder, and the next start makes one with a new cluster id"
    ),
    r"topics\.json": (
        "all acknowledged topics, ACLs, credentials, quotas and settings are in it, no groups. Put it back from a "
        "backup; or move it out of the folder, and the next start begins without them"
    ),
    r"\.lock(-.+)?|\.producer-ids|\.made-by-control|[0-9]{20}\.cleaned": REMOVE,
    r"\.journal-.*\.new|(meta\.properties|topics\.json|partition\.metadata|[a-z-]*-checkpoint)\.new": REMOVE,
    r"partition\.metadata|(cleaner-offset|log-start-offset)-checkpoint": (
        "no record is in it. Put it back from a backup of this partition's folder"
    ),
    r".*-[0-9]+|[0-9]{20}\.log|[0-9]{20}-[0-9]{20}\.swap": (
        "acknowledged records are in it. Put the partition's folder back from a backup; or move it and the "
        "partition's files .journal-left-* out of the data folder, and the partition begins anew"
    ),
}
"""A pattern of names, and the advice; the parts of the name fill its gaps."""


def advice(path: Path) -> str:
    """The advice for a file or a folder, "" for a name that isn't the data folder's."""
    for pattern, text in ADVICE.items():
        if found := re.fullmatch(pattern, path.name):
            return text.format(*found.groups())
    return ""


def explain(error: BaseException) -> str:
    """An error in one line, with the advice if a file of a data folder can't be used until a person has acted."""
    more = ""
    if isinstance(error, Damaged):
        more = advice(Path(error.file))
    elif isinstance(error, PermissionError):
        more = f"give the user that the server runs as (uid {os.geteuid()}) the right to it"
    elif isinstance(error, OSError) and error.filename and needs_a_person(error):
        more = advice(Path(error.filename))
    text = disk.reason(error)
    return f"{text}; {more}" if more else text
