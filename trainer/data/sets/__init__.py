"""Data sets by kind: a module for each layout on disk."""
