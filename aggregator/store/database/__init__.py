"""Runs and events in a SQL database: SQLite or PostgreSQL."""
