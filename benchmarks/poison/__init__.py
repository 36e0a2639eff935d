"""What one client that lies does to a round under each rule of the fold, and what the rules cost."""
