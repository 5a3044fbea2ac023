"""What the metadata log tells about every group: whether it is right, what is odd, what happened.

    logs        which files there are, and cutting them into byte ranges that can be read apart
    origin      who wrote them, and what that says
    parse       a byte range -> rows of the tables, one record at a time: the reference
    columns     the same in columns, many records at a time
    tables      the tables: their columns, and rows in Arrow
    checks      every check: name, severity, meaning; advice: what it means at length
    limits      what the coordinators allowed; options: how somebody says so
    integrity   the checks on a partition's batches
    history     the checks on a group's records, and what happened in it; with it
                generations (two records beside each other), commits, instances, storms, drawing
    compaction  what a compaction must not have lost
    audit       all of it in one process; spark: on Spark
    summary, report, page: what is said of it: JSON, the terminal, HTML; in words; publish: all of them

House rule: a check is a function of rows, and so the same in one process and in Spark. No bytes raise.
"""
