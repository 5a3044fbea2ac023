"""What the metadata log tells about every group: whether it is right, what is odd, what happened.

    logs       which files there are, and cutting them into byte ranges that can be read apart
    parse      a byte range -> rows of the tables, one record at a time: the reference
    tables     the tables: their columns, and rows in Arrow
    checks     every check: name, severity, meaning
    integrity  the checks on a partition's batches
    history    the checks on a group's records, and what happened in it
    compaction what a compaction must not have lost
    audit      all of it in one process
    summary, report, page: what is said of it: JSON, the terminal, HTML

House rule: a check is a function of rows, and so the same in one process and in Spark. No bytes raise.
"""
