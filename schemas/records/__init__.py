"""What is on disk in the metadata log, and what consumers put into the bytes of a group.

The tables read as those of `schemas.api`. A file may hold several records: `RECORDS` in it has versions, first flexible
version and table of each.

House rule: data and no imports.
"""

from __future__ import annotations

RECORDS = {
    "GroupMetadataKey": "group_metadata",
    "GroupMetadataValue": "group_metadata",
    "OffsetCommitKey": "offset_commit",
    "OffsetCommitValue": "offset_commit",
    "ConsumerProtocolSubscription": "consumer_protocol",
    "ConsumerProtocolAssignment": "consumer_protocol",
}
"""The file of each record."""
