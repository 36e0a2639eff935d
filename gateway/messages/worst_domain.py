"""Falls of a run's worst domain: a function of its history, read again where it is not in memory."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from fedplcc.gateway.run_service import RunServiceClient
from fedplcc.shared.scoring.scores import values_of
from fedplcc.shared.types import Event, EventQuery

COMMITTED = "round_committed"
PAGE = 200
"""Rounds that are read at a time."""
MAX_RUNS = 64
"""Runs whose course is kept in memory."""


@dataclass(frozen=True, slots=True)
class Course:
    """What the rounds of a run so far say: the best score of its worst domain, and whether it was low in the last one."""

    best: float = 0.0
    is_low: bool = False


def after_round(course: Course, worst: float, points: float) -> tuple[Course, bool]:
    """Return the course after a round, and whether the worst domain fell in it: below by more than the points, and not
    in the round before.

    Args:
        worst: Score of the round's worst domain, 0 to 1.
        points: Percentage points of the threshold.
    """
    is_low = 100 * (course.best - worst) > points
    return Course(max(course.best, worst), is_low), is_low and not course.is_low


class WorstDomains:
    """Courses of the runs that one receiver hears of."""

    def __init__(self, points: float) -> None:
        self._points = points
        self._courses: OrderedDict[str, Course] = OrderedDict()

    async def fall(self, event: Event, history: RunServiceClient) -> dict[str, float] | None:
        """Return the facts if the worst domain fell in this round of the history; events come in order."""
        course = self._courses.pop(event.run_id, None)
        if course is None:
            course = await self._read(event, history)
        worst = _worst_of(event)
        if worst is None:
            self._keep(event.run_id, course)
            return None
        after, has_fallen = after_round(course, worst, self._points)
        self._keep(event.run_id, after)
        return {"worst": worst, "best": course.best} if has_fallen else None

    def _keep(self, run_id: str, course: Course) -> None:
        self._courses[run_id] = course
        while len(self._courses) > MAX_RUNS:
            self._courses.popitem(last=False)

    async def _read(self, event: Event, history: RunServiceClient) -> Course:
        """Return the course of the rounds before an event."""
        course, after = Course(), 0
        while page := await history.list_events(
            EventQuery(run_id=event.run_id, after=after, before=event.sequence, types=(COMMITTED,), limit=PAGE)
        ):
            for earlier in page:
                after = earlier.sequence
                worst = _worst_of(earlier)
                course = course if worst is None else after_round(course, worst, self._points)[0]
        return course


def _worst_of(event: Event) -> float | None:
    values = values_of(event.data.get("metrics") or {})
    return None if values is None else values.get("worst")
