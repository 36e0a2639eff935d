"""Databases under the store: SQLite and PostgreSQL."""
