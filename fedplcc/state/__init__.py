"""An aggregator's state directory from outside: copied, verified, computed again, also while the aggregator runs on it."""
