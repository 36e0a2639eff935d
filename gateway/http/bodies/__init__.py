"""Bodies of requests and answers that are read or sent piece by piece."""
