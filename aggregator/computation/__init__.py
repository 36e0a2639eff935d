"""The aggregator's mathematics of one round: checks of updates, the fold, clustering of prototypes."""
