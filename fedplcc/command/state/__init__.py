"""`fedplcc state ...`: keep an aggregator's state safe."""
