"""Computation of a round: checks of updates, fold of models, clustering of prototypes."""
