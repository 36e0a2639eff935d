"""A member's way into a federation, and its certificate while it is in."""
