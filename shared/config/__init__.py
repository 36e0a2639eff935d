"""Configurations that people write: settings of the processes, configuration of a run."""
