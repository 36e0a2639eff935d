"""The callbacks of one run, called in order. For one thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from fedplcc.shared.errors import FedplccError, Unavailable
from fedplcc.tracking.callbacks import Callback, RoundResult, RunEnd, RunStart, StopRun
from fedplcc.tracking.tracker import Tracker

OnNote = Callable[[str], None]


class Observation:
    """Tells the callbacks of a run, and its trackers, and knows whether one of them wants it to end."""

    def __init__(self, callbacks: Sequence[Callback] = (), on_note: OnNote = lambda text: None) -> None:
        """Prepare it.

        Args:
            on_note: Takes a sentence for people: that a tracker is away, or there again.
        """
        self._callbacks = [each for each in callbacks if not isinstance(each, Tracker)]
        self._trackers = [_PatientTracker(each, on_note) for each in callbacks if isinstance(each, Tracker)]
        self.stop_reason: str | None = None
        """Why a callback wants the run to end after its last committed round; None while none does."""

    def close(self) -> None:
        """Let go of the trackers' places; a run that has not ended goes on there in another call."""
        for tracker in self._trackers:
            tracker.close()

    def start(self, run: RunStart) -> None:
        """Tell of the run's beginning.

        Raises:
            Unavailable: A tracker's place cannot be reached or written.
        """
        for tracker in self._trackers:
            tracker.start(run)
        for callback in self._callbacks:
            with _named(callback, "on_start"):
                callback.on_start(run)

    def round(self, result: RoundResult) -> None:
        """Tell of a committed round."""
        for tracker in self._trackers:
            tracker.round(result)
        for callback in self._callbacks:
            with _named(callback, f"on_round of round {result.number}"):
                try:
                    callback.on_round(result)
                except StopRun as wish:
                    self.stop_reason = str(wish) or f"stopped by {callback.name} after round {result.number}"

    def end(self, end: RunEnd) -> None:
        """Tell of the run's end.

        Raises:
            Unavailable: A tracker still lacks rounds; all others have been told.
        """
        for callback in self._callbacks:
            with _named(callback, "on_end"):
                callback.on_end(end)
        lacking = [sentence for tracker in self._trackers if (sentence := tracker.end(end))]
        if lacking:
            raise Unavailable("; ".join(lacking))


class _PatientTracker:
    """Keeps what a tracker could not take, and tries again with the next round: a server away must not end a training."""

    def __init__(self, tracker: Tracker, on_note: OnNote) -> None:
        self._tracker, self._on_note = tracker, on_note
        self._waiting: list[RoundResult] = []
        self._trouble = ""

    def close(self) -> None:
        try:
            self._tracker.close()
        except Exception as error:  # whatever a tracker's library raises
            self._on_note(f"the tracker {self._tracker.name} cannot be closed: {_why(error)}")

    def start(self, run: RunStart) -> None:
        try:
            self._tracker.on_start(run)
        except Exception as error:  # whatever a tracker's library raises
            raise Unavailable(f"the tracker {self._tracker.name} cannot be used: {_why(error)}") from error

    def round(self, result: RoundResult) -> None:
        self._waiting.append(result)
        self._deliver()

    def end(self, end: RunEnd) -> str:
        """Close the tracker; returns what it lacks, empty if it lacks nothing."""
        self._deliver()
        if not self._waiting:
            try:
                self._tracker.on_end(end)
            except Exception as error:  # whatever a tracker's library raises
                self._trouble = _why(error)
        if not self._trouble:
            return ""
        return (
            f"the tracker {self._tracker.name} lacks {len(self._waiting)} rounds or the end of the run: {self._trouble}; "
            "the results are written, and the same command on the same folder sends what is missing"
        )

    def _deliver(self) -> None:
        try:
            while self._waiting:
                self._tracker.on_round(self._waiting[0])
                del self._waiting[0]
        except Exception as error:  # whatever a tracker's library raises
            if not self._trouble:
                self._on_note(f"the tracker {self._tracker.name} takes no rounds now and is tried again: {_why(error)}")
            self._trouble = _why(error)
        else:
            if self._trouble:
                self._on_note(f"the tracker {self._tracker.name} has all rounds again")
            self._trouble = ""


@contextmanager
def _named(callback: Callback, what: str) -> Iterator[None]:
    """Within the block, name the callback in its error."""
    try:
        yield
    except Exception as error:
        error.add_note(
            f"raised by {callback.name}, {what}; the committed rounds are kept, and the same call on the same folder "
            "goes on from there"
        )
        raise


def _why(error: Exception) -> str:
    if isinstance(error, FedplccError):
        return error.detail
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
