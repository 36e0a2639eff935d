"""A run's configuration and the folder of its results."""
