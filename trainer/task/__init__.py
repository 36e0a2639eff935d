"""Tasks of a client: inputs, training or evaluation, delivery of the result."""
