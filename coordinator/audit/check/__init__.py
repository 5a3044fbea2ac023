"""Turns rows into findings, and into the story of each group.

    checks       every check: name, severity, meaning, advice
    limits       the settings of the coordinators that wrote the log
    integrity    checks a partition's batches
    history      follows a group through its records
    records      checks a group's record alone, and beside the one before it
    generations  compares two records of a group
    commits      checks a group's committed offsets
    instances    checks a group's static members
    storms       checks how often a group rebalances
    drawing      what is kept of a group for its drawing
    compaction   finds keys that a compaction lost

House rule: a check depends on rows alone, so it finds the same in one process and on Spark. No bytes raise.
"""
