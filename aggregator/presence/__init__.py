"""Presence of clients: who is connected, how far each has come, and who is absent."""
