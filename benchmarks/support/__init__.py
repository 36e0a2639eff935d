"""What benchmarks share: processes, fake trainers, models, reports, and the bare loop beside which they stand."""
