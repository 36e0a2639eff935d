"""Runs shown on a terminal."""
