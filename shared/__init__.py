"""What the three services have in common."""

import os

# gRPC's C library writes lines of its own to stderr, between those of the log, which are JSON. What they tell of connections
# that end the errors of calls tell too. It looks when it loads, and nothing of ours loads it before this package.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
