"""What a client has spent of its privacy over all runs, and the secret of its noise; both stay in its state directory."""
