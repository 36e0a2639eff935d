"""Code that aggregator, trainer and gateway share."""

import os

# gRPC's C library writes its own lines to stderr, between the log's JSON; the errors of calls say the same. It reads the
# variable when it loads, and this package is always imported before it.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

if __name__ == "shared":  # of a script in the repository's folder
    from fedplcc.shared.importing import take_one_name

    take_one_name()
