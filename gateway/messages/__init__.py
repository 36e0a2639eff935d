"""Messages to people: what of the history is told, to whom, and how it is delivered once."""
