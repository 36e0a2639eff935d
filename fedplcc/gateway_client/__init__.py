"""The client of a gateway for programs: `fedplcc.Gateway` and `fedplcc.AsyncGateway`, which the command uses too.

`operations.py` is generated, and all its operations go through one transport. `Gateway` waits for the same coroutines and
has their signatures by `waited`, as type checkers follow `ParamSpec`; a generated copy for plain code is not needed.
"""
