"""Routes of the REST interface."""
