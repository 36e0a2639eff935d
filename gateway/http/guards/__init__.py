"""Guards of the gateway: who may ask, from where, and how much at once."""
