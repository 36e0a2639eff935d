"""Presence of clients: sessions, progress and deadlines; in memory only."""
