"""Configurations as people write them: settings of the processes, and of a run."""
