"""Store in a SQL database: SQLite or PostgreSQL."""
