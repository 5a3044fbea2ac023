"""The files of one partition's log, whether it has groups or records of a topic: written, read back, repaired."""
