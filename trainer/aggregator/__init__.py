"""The trainer's connection to its aggregator."""
