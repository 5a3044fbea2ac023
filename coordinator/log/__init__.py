"""All that a server keeps on disk: the groups' records, the topics and their records, and which server owns the folder.

- `engine.py`: the interface between the runtime and the log of the groups.
- `memory.py`: an engine in memory, for the test kit. `embedded/`: the engine in files.
- `topics/`: the list of topics, and the logs of their partitions.
- `compaction/`: removes superseded records from a log of either kind.
- `segments/`: the files of one partition's log, of either kind.
- `meta.py`: the data folder's meta.properties. `store.py`: opens all of this as one.
"""
