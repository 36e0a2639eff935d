"""Runs and rounds as pure functions over frozen records: no clock, no disk, no socket."""
