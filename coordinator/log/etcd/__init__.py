"""The engine of the log on etcd: nodes share one log, and a partition moves to another node when its owner dies."""

import os

# gRPC's lines would stand between log lines in JSON. It reads this when it is imported.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
