"""Reads the records of `__consumer_offsets`: the one reader for the inference, the audit and `tenure log`.

    values    keys; values of classic groups and of committed offsets; subscriptions and assignments
    consumer  keys and values of groups of the consumer protocol (KIP-848)

House rule: bytes raise ProtocolError, and nothing else.
"""
