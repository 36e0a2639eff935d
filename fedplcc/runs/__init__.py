"""A run's configuration, and the files and folder of its results."""
