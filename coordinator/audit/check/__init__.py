"""Rows become findings, and the story of each group.

    checks      every check: name, severity, meaning, advice
    limits      what the coordinators allowed
    integrity   the checks on a partition's batches
    history     the checks on a group's records, and what happened in it; with it
                generations (two records beside each other), commits, instances, storms, drawing
    compaction  what a compaction must not have lost

House rule: a check is a function of rows, and so the same in one process and in Spark. No bytes raise.
"""
