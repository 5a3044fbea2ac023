"""Files become rows: what a log, and the topic of events beside it, hold.

    logs      which files there are, and cutting them into byte ranges that can be read apart
    records   batches, keys, values and markers, read within limits
    origin    who wrote them, and what that says
    parse     a byte range -> rows of the tables, one record at a time: the reference
    columns   the same in columns, many records at a time
    tables    the tables: their columns, and rows in Arrow
    events    what the server itself told in `__rebalance_events`

House rule: nothing is judged here. `tenure log` reads with logs and records alone, which import nothing heavy.
"""
