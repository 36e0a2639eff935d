"""gRPC for all processes: addresses, channels, servers, errors, transfers."""
