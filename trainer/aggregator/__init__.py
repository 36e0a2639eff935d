"""Connection of a trainer to its aggregator."""
