"""Kafka's wire format: bytes on one side, messages on the other.

    connection   a stream of bytes -> frames
    header       a frame -> who asks what; a message -> a frame
    messages     the classes of all messages and records; a body <-> a message
    compile      a definition -> a class and its functions; source writes the functions' code
    definition   the tables of `schemas` -> definitions
    primitives   what the functions' code calls
    records      the batches of a log
    stub         messages.pyi, for type checkers
    errors       what can be wrong with bytes

House rule: no I/O, no clock, no chance; imports nothing of ours but `schemas`.
"""
