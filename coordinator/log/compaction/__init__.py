"""Compaction of a log of groups or of a topic: the rules, the process that follows them, the thread that starts it."""
