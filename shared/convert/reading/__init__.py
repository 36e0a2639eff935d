"""Readers of single fields, of JSON objects and of page tokens."""
