"""The records of the metadata log, and the bytes that consumers exchange through a group.

The tables have the form of those in `schemas.api`. A file may hold several records: its `RECORDS` has versions, first
flexible version and table of each.

House rule: data and no imports.
"""

RECORDS = {
    "GroupMetadataKey": "group_metadata",
    "GroupMetadataValue": "group_metadata",
    "OffsetCommitKey": "offset_commit",
    "OffsetCommitValue": "offset_commit",
    "ConsumerGroupMetadataKey": "consumer_group",
    "ConsumerGroupMetadataValue": "consumer_group",
    "ConsumerGroupPartitionMetadataKey": "consumer_group",
    "ConsumerGroupPartitionMetadataValue": "consumer_group",
    "ConsumerGroupMemberMetadataKey": "consumer_group",
    "ConsumerGroupMemberMetadataValue": "consumer_group",
    "ConsumerGroupTargetAssignmentMetadataKey": "consumer_group",
    "ConsumerGroupTargetAssignmentMetadataValue": "consumer_group",
    "ConsumerGroupTargetAssignmentMemberKey": "consumer_group",
    "ConsumerGroupTargetAssignmentMemberValue": "consumer_group",
    "ConsumerGroupCurrentMemberAssignmentKey": "consumer_group",
    "ConsumerGroupCurrentMemberAssignmentValue": "consumer_group",
    "ConsumerGroupRegularExpressionKey": "consumer_group",
    "ConsumerGroupRegularExpressionValue": "consumer_group",
    "ShareGroupMetadataValue": "share_group",
    "ShareGroupMemberMetadataValue": "share_group",
    "ShareGroupCurrentMemberAssignmentValue": "share_group",
    "ShareGroupStatePartitionMetadataValue": "share_group",
    "StreamsGroupMetadataValue": "streams_group",
    "StreamsGroupMemberMetadataValue": "streams_group",
    "StreamsGroupTargetAssignmentMemberValue": "streams_group",
    "StreamsGroupCurrentMemberAssignmentValue": "streams_group",
    "StreamsGroupTopologyValue": "streams_group",
    "TransactionLogKey": "transaction_log",
    "TransactionLogValue": "transaction_log",
    "ConsumerProtocolSubscription": "consumer_protocol",
    "ConsumerProtocolAssignment": "consumer_protocol",
}
"""The file of each record."""
