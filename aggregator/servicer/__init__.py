"""gRPC services: decode, call the coordinator, encode."""
