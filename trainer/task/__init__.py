"""One task from the request to its acknowledgement: inputs, training, delivery."""
