"""The error of a delivery that failed, and the time that each has."""

SEND_S = 20.0
"""Longest time of an attempt, whatever the receiver does."""


class Undelivered(Exception):
    """A receiver did not take a message."""

    def __init__(self, detail: str) -> None:
        """Keep why, without addresses and secrets."""
        super().__init__(detail)
        self.detail = detail
