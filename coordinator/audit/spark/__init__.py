"""The audit on Spark: for logs that are too large for one process, live clusters, and logs that grow.

    session   a session with what the audit needs of it
    source    the data source "kafka_group_log": a log's tables, one task per byte range
    job       the checks, partition by partition and group by group
    live      a cluster's own topic, through Spark's Kafka source
    follow    a log that grows, as a stream into parquet
    main      all of it as a program for spark-submit

House rule: only what a process on another machine can import is sent there; the checks are those of one process.
"""
