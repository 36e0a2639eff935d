"""Published accuracies, and what a report says of ours beside them: distances, signs, and what explains a gap."""
