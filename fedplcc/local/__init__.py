"""A federation of processes on this machine."""
