"""Causes of connections that fail, and what finds them."""
