"""Trainer's halves of a method's parts, one file each: what each does before a client's training, and what after it."""
