"""Differential privacy of class sums: what a release costs, how releases add up, and how one is made. Pure."""
