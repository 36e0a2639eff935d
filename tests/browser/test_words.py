"""Words of the console: events in sentences, values as text, what a start form makes of a text."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from fedplcc import aggregator
from fedplcc.shared.types import RoundPhase
from tests.support.screens.browsing import Console


def an_event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "round": 1, "client_id": None, "data": {}, **fields}


# Events


def types_of_events() -> set[str]:
    """Every type of event that the aggregator writes into a run's history."""
    folder = Path(aggregator.__file__).parent
    text = "\n".join(path.read_text() for path in sorted(folder.rglob("*.py")))
    found = set(re.findall(r'(?:happened\(|Event\(\s*type=)\s*"([a-z_]+)"', text))
    found |= set(re.findall(r'RunStatus\.[A-Z]+: "([a-z_]+)"', text)) | {
        "run_resumed",
        "update_refused",
        "report_refused",
    }
    found |= {f"round_{phase.value}" for phase in RoundPhase if phase is not RoundPhase.INITIALISING}
    # Events of no run, and one after which nobody is shown the history any more.
    return found - {"client_forgotten", "client_joined", "client_left", "client_lost", "run_deleted"}


def test_every_event_that_the_aggregator_writes_has_a_sentence_and_a_place_among_the_filters(modules: Console) -> None:
    known, kinds = modules.within("lib/sentences.js", "(module) => [module.KNOWN_TYPES, module.KINDS]")
    assert types_of_events() == set(known)
    assert set().union(*(kinds[name] for name in ("rounds", "clients", "run"))) == set(known)
    assert set(kinds["problems"]) < set(known)


def test_sentences_say_who_and_why(modules: Console) -> None:
    def sentence(kind: str, **fields: Any) -> str:
        return str(modules.call("lib/sentences.js", "sentenceOf", an_event(kind, **fields)))

    metrics = {"accuracy": {"a": 0.5, "mean": 0.6789, "worst": 0.5}}
    assert sentence("round_committed", data={"metrics": metrics}) == (
        "Round 1 committed: mean accuracy 67.9 %, worst domain 50.0 %"
    )
    assert sentence("round_committed", round=0) == "Round 0 committed"
    assert sentence("client_dropped", client_id="bob", data={"reason": "lost", "detail": "not connected"}) == (
        "Round 1 goes on without client bob: lost: not connected"
    )
    assert sentence("client_problem", client_id="bob", data={"detail": "no data", "hint": "mount it"}) == (
        "Client bob has a problem: no data; mount it"
    )
    assert sentence("update_committed", client_id="bob", data={"num_examples": 1200, "num_prototypes": 1}) == (
        "Client bob committed its update: 1,200 samples, 1 prototype"
    )
    assert sentence("comet_sighted", client_id="bob") == "Comet sighted (client bob)"


def test_every_sentence_stands_without_details(modules: Console) -> None:
    for kind in types_of_events():
        text = modules.call("lib/sentences.js", "sentenceOf", an_event(kind, client_id="bob"))
        assert text
        assert "undefined" not in text, kind


# Values


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("percent", [0.9344], "93.4 %"),
        ("percent", [1], "100.0 %"),
        ("percent", [None], "–"),  # noqa: RUF001
        ("count", [1234567], "1,234,567"),
        ("number", [0.012345], "0.0123"),
        ("number", [12345.6], "12346"),
        ("number", [0], "0"),
        ("number", [1e-7], "1.00e-7"),
        ("number", [2.5e9, 2], "2.5e+9"),
        ("number", [0, 0], "0"),
        ("counted", [1, "client"], "1 client"),
        ("counted", [0, "client"], "0 clients"),
        ("bytes", [0], "0 bytes"),
        ("bytes", [1], "1 byte"),
        ("bytes", [999], "999 bytes"),
        ("bytes", [1000], "1 kB"),
        ("bytes", [19_612_345], "19.6 MB"),
        ("bytes", [999_600], "1 MB"),
        ("duration", [0.04], "0.0 s"),
        ("duration", [9.94], "9.9 s"),
        ("duration", [59.6], "1 min"),
        ("duration", [200], "3 min 20 s"),
        ("duration", [3600], "1 h"),
        ("duration", [100_000], "1 d 3 h"),
        ("duration", [-3], "0.0 s"),
        ("duration", [None], "–"),  # noqa: RUF001
        ("ago", ["2026-01-01T00:00:00Z", 1767225601000], "now"),
        ("ago", ["2026-01-01T00:00:00Z", 1767225659000], "59 s ago"),
        ("ago", ["2026-01-01T00:00:00Z", 1767225599000], "now"),
        ("ago", ["2026-01-01T00:00:00Z", 1767232800000], "2 h ago"),
        ("ago", [None, 0], "never"),
        ("listed", [[]], ""),
        ("listed", [["ann"]], "ann"),
        ("listed", [["ann", "bob", "cid"]], "ann, bob and cid"),
        ("listed", [["a", "b", "c", "d"], 2], "a, b and 2 more"),
        ("words", ["samples_per_second"], "samples per second"),
        ("sentence", ["a run that is completed does not take pause"], "A run that is completed does not take pause."),
        ("sentence", ["scan-1f: gone"], "scan-1f: gone."),
        ("sentence", ["Really?"], "Really?"),
        ("reading", ["samples_per_second", 120.44], ["samples", "120 / s"]),
        ("reading", ["device_memory_bytes", 2_500_000_000], ["device memory", "2.5 GB"]),
        ("reading", ["batch_seconds", 0.0123], ["batch", "12.3 ms"]),
        ("reading", ["device_utilisation_ratio", 0.5], ["device utilisation", "50.0 %"]),
        ("reading", ["unreadable_files", 3], ["unreadable files", "3"]),
    ],
)
def test_values_read_well(modules: Console, name: str, arguments: list[Any], text: str | list[str]) -> None:
    assert modules.call("lib/format.js", name, *arguments) == text


def test_classes_and_domains_can_be_told_apart(modules: Console) -> None:
    colours = [modules.call("lib/palette.js", "colour", index) for index in range(20)]
    assert len(set(colours)) == 10
    assert colours[10:] == colours[:10]
    shapes = [modules.call("lib/palette.js", "shape", index)["name"] for index in range(8)]
    dashes = [modules.call("lib/palette.js", "dash", index) for index in range(8)]
    assert len(set(shapes)) == len(set(dashes)) == 8
    assert all(one != other for one, other in pairwise(colours))


def test_names_classes_and_addresses_are_understood(modules: Console) -> None:
    def call(name: str, *arguments: Any) -> Any:
        return modules.call("start/run_document.js", name, *arguments)

    assert call("namesIn", " a, b\n\nc ,") == ["a", "b", "c"]
    assert call("classesOf", [{"class_counts": {"b": 1, "a": 2}}, {"class_counts": {"10": 1}}]) == ["10", "a", "b"]
    assert call("besideField", {"location": "run.seed", "detail": 'run.seed = "a: b": write a whole number'}) == (
        "Write a whole number."
    )
    assert call("besideField", {"location": "run.clients", "detail": "run.clients is missing"}) == "This is missing."
    assert call("besideField", {"location": "", "detail": "give one of them"}) == "Give one of them."
    named = "(module, [name, time]) => module.freshName(name ?? undefined, new Date(time))"
    made = [
        modules.within("start/run_document.js", named, [name, "2026-11-28T09:05:00Z"]) for name in (None, "a", "b-9")
    ]
    assert made == ["run-2026-11-28-0905", "a-2", "b-10"]
    command = "(module, text) => module.runCommands(new URL(text)).start"
    assert modules.within("lib/commands.js", command, "http://192.0.2.1:8080/").endswith(" --insecure")
    assert "--insecure" not in modules.within("lib/commands.js", command, "https://fed.example/")
    clients = [{"client_id": name, "class_counts": {"a": 1}} for name in ("ann", "bob")]
    clients.append({"client_id": "eve", "class_counts": {"a": 1, "b": 1}})
    assert modules.call("start/run_document.js", "strangeClasses", clients, ["a", "b"]) == [
        "eve has the class b, which no other client has"
    ]
