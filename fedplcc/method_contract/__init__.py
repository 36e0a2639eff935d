"""The contract of every method, whatever it computes: checks for the methods of this package and for those of others.

The tests of this project try every check on every method and setting; `fedplcc doctor --method` on a stranger's.
"""
