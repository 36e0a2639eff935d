"""Aggregator's halves of a method's parts, one file each: what a round has come to, and what it comes to with the part."""
