"""`fedplcc run start` says which connected clients will refuse the run for a class that it does not name."""

from __future__ import annotations

from fedplcc.command.run.starting import dropping_clients

COUNTS = {
    "ann": {"cat": 3, "dog": 2},
    "bob": {"cat": 1, "owl": 4, "emu": 1},
    "eve": {"o\u0308rn": 2, "cat": 0},
}


def test_clients_with_a_class_that_the_run_has_not_are_named_with_it() -> None:
    said = dropping_clients(COUNTS, (), ("cat", "dog", "\u00f6rn"))
    assert said.startswith("clients with classes that the run has not will refuse it: bob has emu, owl; stop the run,")
    assert "ann" not in said
    assert "eve" not in said


def test_nothing_is_said_of_clients_that_take_no_part_or_have_fewer_classes() -> None:
    assert dropping_clients(COUNTS, ("ann", "eve"), ("cat", "dog", "\u00f6rn", "yak")) == ""
    assert dropping_clients({}, (), ("cat", "dog")) == ""


def test_of_many_clients_the_first_are_named() -> None:
    counts = {f"site-{number}": {"owl": 1} for number in range(9)}
    assert "site-4 has owl (and 4 more); stop" in dropping_clients(counts, (), ("cat", "dog"))
