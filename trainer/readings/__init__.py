"""Measurements that a trainer takes of itself and of its GPU."""
