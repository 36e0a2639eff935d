"""Choice of the worker for each client: homes in turn, the longest work first, taking over only where that is sooner."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fedplcc.simulation.placement import Busy, Placement

TRAIN = "train"


def placed(homes: dict[str, int], seconds: dict[str, float], reading_s: float = 1.0) -> Placement:
    return Placement(
        homes=homes,
        reading_s=dict.fromkeys(homes, reading_s),
        seconds={(client_id, TRAIN): value for client_id, value in seconds.items()},
    )


def waiting(*clients: str) -> dict[str, str]:
    return dict.fromkeys(clients, TRAIN)


def test_clients_are_dealt_out_in_turn() -> None:
    assert Placement.in_turn("abcde", 2).homes == {"a": 0, "b": 1, "c": 0, "d": 1, "e": 0}


def test_a_worker_does_its_own_clients_work_the_longest_first_and_what_is_unknown_in_the_order_of_ids() -> None:
    placement = placed({"a": 0, "b": 1, "c": 0, "d": 0}, {"c": 5.0})
    assert placement.choose(0, waiting("a", "b", "c", "d"), {}) == "c"
    assert placement.choose(0, waiting("a", "b", "d"), {}) == "a"


def test_an_idle_worker_takes_over_what_would_be_done_sooner_there() -> None:
    placement = placed({"a": 0, "b": 0, "c": 1}, {"a": 10.0, "b": 4.0})
    assert placement.choose(1, waiting("b"), {0: Busy("a", TRAIN, 1.0)}) == "b"


def test_nothing_is_taken_over_whose_data_take_longer_to_read_or_of_which_nothing_is_known() -> None:
    slow = placed({"a": 0, "b": 0}, {"a": 10.0, "b": 10.0}, reading_s=30.0)
    assert slow.choose(1, waiting("b"), {0: Busy("a", TRAIN, 0.0)}) is None
    unknown = Placement(homes={"a": 0, "b": 0})
    assert unknown.choose(1, waiting("b"), {0: Busy("a", TRAIN, 0.0)}) is None


def test_of_several_the_one_that_would_wait_longest_is_taken_over() -> None:
    placement = placed({"a": 0, "b": 0, "c": 1, "d": 1}, {"a": 5.0, "b": 5.0, "c": 9.0, "d": 5.0})
    busy = {0: Busy("a", TRAIN, 0.0), 1: Busy("c", TRAIN, 0.0)}
    assert placement.choose(2, waiting("b", "d"), busy) == "d"


def test_clients_that_are_alike_stay_where_they_are() -> None:
    """Five equal ones on two workers: the second is idle a moment before the first takes its last."""
    placement = placed(Placement.in_turn("abcde", 2).homes, dict.fromkeys("abcde", 10.0))
    assert placement.choose(1, waiting("e"), {0: Busy("c", TRAIN, 9.9)}) is None
    assert placement.choose(1, waiting("e"), {0: Busy("c", TRAIN, 12.0)}) is None


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=12), st.integers(1, 5), st.floats(0.01, 20))
def test_all_work_is_done_once_and_taking_over_never_makes_a_round_longer(
    seconds: list[float], num_workers: int, reading_s: float
) -> None:
    clients = [f"c{number:02}" for number in range(len(seconds))]
    took = dict(zip(clients, seconds, strict=True))
    homes = Placement.in_turn(clients, num_workers).homes
    fixed = max(sum(took[name] for name in clients if homes[name] == worker) for worker in range(num_workers))
    placement = placed(dict(homes), took, reading_s)
    assert duration(placement, took, num_workers, reading_s) <= fixed * (1 + 1e-9)


def duration(placement: Placement, took: dict[str, float], num_workers: int, reading_s: float) -> float:
    """Seconds of a round in which every worker follows the placement, by the estimates."""
    open_work, now = waiting(*took), 0.0
    running: dict[int, tuple[str, float, float]] = {}
    while True:
        for worker in range(num_workers):
            if worker in running:
                continue
            busy = {other: Busy(name, TRAIN, now - begin) for other, (name, begin, _) in running.items()}
            choice = placement.choose(worker, open_work, busy)
            if choice is not None:
                cost = 0.0 if placement.homes[choice] == worker else reading_s
                placement.homes[choice] = worker
                del open_work[choice]
                running[worker] = (choice, now, now + cost + took[choice])
        if not running:
            assert not open_work
            return now
        worker = min(running, key=lambda number: running[number][2])
        now = running.pop(worker)[2]
