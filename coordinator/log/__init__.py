"""All that a server keeps: the groups' records, topics and their records, and whose data folder it is.

- `engine.py`: the interface between the runtime and the log of the groups.
- `memory.py`: an engine in memory, for tests. `embedded/`: the engine in files.
- `topics/`: the list of topics, and the logs of their partitions.
- `compaction/`: how a log of either kind loses superseded records.
- `segments/`: the files of one partition's log, of either kind.
- `meta.py`: the data folder's meta.properties. `store.py`: opens all of this as one.
"""
