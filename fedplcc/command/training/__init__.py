"""Commands that train on this machine: `demo`, `simulate` and `compare`."""
