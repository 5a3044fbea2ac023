"""`make demo`: a rolling restart of five consumers, as static members, as dynamic ones, and in the consumer protocol.

    command      the command line of the demo
    roll         the story and its figures
    processes    the coordinator and the consumers, each in a process of its own
    consumer     the program that each consumer process runs
    server_log   reads the events in the coordinator's log
    display      shows the demo to a person

House rule: every figure comes from the server, from its log or its responses, never from what the story expects.
"""
