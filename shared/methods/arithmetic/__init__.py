"""Arithmetic with the same bits on any machine, and FINCH."""
