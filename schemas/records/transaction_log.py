"""The record of a transactional id in `__transaction_state`: TransactionLogKey and TransactionLogValue.

Key and value start with their version in two bytes, which is not part of these tables. A value of null is a tombstone:
the id has expired. `transaction_status` is the number of a state, 0 for Empty. Times are in milliseconds since 1970,
`transaction_start_timestamp_ms` is -1 before the first transaction.
Source: Kafka's TransactionLogKey.json and TransactionLogValue.json, release 4.3.
"""

TRANSACTION_LOG_KEY = """
transactional_id  string  0+
"""

TRANSACTION_LOG_VALUE = """
producer_id                           int64                0+
producer_epoch                        int16                0+
transaction_timeout_ms                int32                0+
transaction_status                    int8                 0+
transaction_partitions                []PartitionsSchema   0+  null
    topic                             string               0+
    partition_ids                     []int32              0+
transaction_last_update_timestamp_ms  int64                0+
transaction_start_timestamp_ms        int64                0+
previous_producer_id                  int64                1+  default=-1 ignorable tag=0
next_producer_id                      int64                1+  default=-1 ignorable tag=1
client_transaction_version            int16                1+  default=0 ignorable tag=2
next_producer_epoch                   int16                1+  default=-1 ignorable tag=3
"""

CHANGES = {
    "TransactionLogValue": {
        1: (
            "Flexible (KIP-915), with the tagged `previous_producer_id`, `next_producer_id`, "
            "`client_transaction_version` (KIP-890) and `next_producer_epoch` (KIP-939)."
        ),
    },
}

RECORDS = {
    "TransactionLogKey": ((0, 0), None, TRANSACTION_LOG_KEY),
    "TransactionLogValue": ((0, 1), 1, TRANSACTION_LOG_VALUE),
}
"""Versions, first flexible version and table of each record."""
