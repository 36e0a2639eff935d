"""Methods whose server makes the head, and their closed forms."""
