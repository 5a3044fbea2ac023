"""Reads files into rows of tables.

    logs      finds the files of a log and cuts them into byte ranges that can be read separately
    batches   reads batches and markers, within limits; coordinator.story.records reads their records
    parse     reads a byte range into rows, one record at a time: the reference for columns
    columns   reads a byte range into columns, many records at a time, with
              vectors (numbers and texts at many positions) and fields (records, keys, values, members)
    tables    the columns of the tables, and rows as Arrow
    events    reads what the server recorded in `__rebalance_events`
    ids       reads the transactional ids in `__transaction_state`

House rule: nothing is judged here. `tenure log` uses logs, parse and batches, which import nothing heavy.
"""
