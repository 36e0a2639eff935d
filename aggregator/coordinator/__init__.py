"""The coordinator: the use cases of RunService and RoundService, and the ledger, the one way to change a run."""
