"""The `fedplcc` command: one file for each command."""
