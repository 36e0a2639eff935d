"""Speed and memory against peers and limits; see README.md. Not installed, and never part of what a test asserts."""
