"""What leaves a site: a table of every field that a trainer sends, and a log of everything that it sent."""
