"""Rules by which clients' updates become one, other than the mean: what a client that lies can do to them is bounded."""
