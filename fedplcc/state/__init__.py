"""Backup, restore and replay of an aggregator's state directory, also while the aggregator runs."""
