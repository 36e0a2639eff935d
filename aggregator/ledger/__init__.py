"""The ledger, the one way to change a run, and what one change is made of."""
