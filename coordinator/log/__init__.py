"""All that a server keeps: the log of groups behind one interface, topics and their logs, and whose data folder it is.

    engine.py    the interface between the runtime and the log of groups
    memory.py    an engine in memory, for tests
    store.py     opens all of it as one
    meta.py      the data folder's meta.properties
    embedded/    the engine in files
    topics/      the list of topics, the logs of their partitions
    compaction/  compaction of either kind of log
    segments/    the files of one partition
"""
