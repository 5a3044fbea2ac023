"""Turns rows into findings, and into the story of each group.

    checks       every check: name, severity, meaning, advice
    limits       the settings of the coordinators that wrote the log
    integrity    checks a partition's batches
    history      follows a group through its records, and keeps what its drawing shows
    records      checks a group's record alone, and beside the one before it
    commits      checks a group's committed offsets
    instances    checks a group's static members
    storms       checks how often a group rebalances
    consumer_groups  checks a group of the consumer protocol (KIP-848)
    transactions checks transactions, and the epochs of producers
    compaction   finds keys that a compaction lost

House rule: a check depends on rows alone, so it finds the same in one process and on Spark. No bytes raise.
"""
