"""What leaves a site: a log of everything that a trainer sent."""
