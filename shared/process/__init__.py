"""Process basics: logs, metrics, clocks, durable files, memory, failpoints."""
