"""Benchmarks that `python -m benchmarks` leaves out: they take long, or need another checkout."""
