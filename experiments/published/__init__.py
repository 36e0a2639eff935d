"""Published accuracies, and what a report says of ours beside them. `python -m experiments.published FILE FOLDER` writes it.

A comparison's file names them in `extra`, which fedplcc leaves alone (names.py).
"""
