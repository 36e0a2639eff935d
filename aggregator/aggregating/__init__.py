"""Aggregation of rounds that have all their updates, outside the ledger's lock."""
