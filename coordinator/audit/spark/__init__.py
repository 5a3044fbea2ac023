"""The audit on Spark: for logs that are too large for one process, live clusters, and logs that grow.

    session   starts Spark with the settings that the audit needs
    source    the data source "kafka_group_log": a log's tables, one task per byte range
    split     the part of a log that one task reads
    tail      the log as a stream: what is new since the last look
    job       the checks, partition by partition and group by group
    live      a cluster's own topic, through Spark's Kafka source
    follow    a log that grows, as a stream into parquet
    main      all of it as a program for spark-submit

House rule: Spark sends to workers only code that a process on another machine can import; the checks are the same as in
one process.
"""
