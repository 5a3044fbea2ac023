"""Kafka's wire format: bytes on one side, messages on the other.

    connection   a stream of bytes -> frames
    header       a frame -> its header; a message -> a frame
    messages     the classes of all messages and records; a body <-> a message
    compile      a definition -> a class and its functions; source writes the functions' code
    definition   the tables of `schemas` -> definitions
    primitives   functions that the functions' code calls
    records      the batches of a log
    consumer     subscriptions and assignments of consumers
    checksum     CRC-32C
    speed        named tuples without their constructor, enums that hash fast
    errors       the errors of bytes that break the format

House rule: no I/O, no clock, no chance; imports nothing of ours but `schemas`.
"""
