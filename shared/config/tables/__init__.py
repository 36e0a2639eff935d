"""Tables of a run's configuration, one file each."""
