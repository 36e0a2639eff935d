"""Garbage: the blobs that no run keeps, and their removal."""
