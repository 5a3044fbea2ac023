"""etcd as the store that the nodes of a cluster share: its client, and what only etcd needs. See `log.cluster`."""

import os

# gRPC's lines would stand between log lines in JSON. It reads this when it is imported.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
