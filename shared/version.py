"""The version of every package here, and of the processes that report it."""

VERSION = "0.2.0.dev0"
