"""Histories: what of open runs is kept in memory, each read from the history after a restart."""
