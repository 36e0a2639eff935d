"""The gateway and other services as the command sees them."""
