"""gRPC for all processes: addresses, channels, servers, statuses, chunk sizes."""
