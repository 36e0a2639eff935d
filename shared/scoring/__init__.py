"""Scores of predictions: by class, from fixed bins, and with intervals."""
