"""The engine of the log on etcd: nodes share one log, and a partition moves to another node when its owner dies."""
