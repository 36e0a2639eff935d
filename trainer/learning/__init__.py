"""Local training and evaluation in torch."""
