"""The coordinator: use cases of both services, and the one way to change a run."""
