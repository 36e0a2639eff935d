"""The description of the API: operations, examples and its page."""
