"""Routes of the REST interface: each path beside its handler."""
