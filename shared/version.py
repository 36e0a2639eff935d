"""Version of all packages; every process reports it."""

VERSION = "0.2.0"
