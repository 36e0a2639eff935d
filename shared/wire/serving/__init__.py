"""The serving side of gRPC: a port, its connections, who calls, and how much at once."""
