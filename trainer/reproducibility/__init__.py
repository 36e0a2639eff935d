"""Causes of the last bits of a training: seeds, torch settings, and the record of the machine."""
