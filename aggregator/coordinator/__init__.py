"""The coordinator: the use cases of RunService and RoundService."""
