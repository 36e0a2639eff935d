"""A run's model in use: loaded, evaluated, applied, exported."""
