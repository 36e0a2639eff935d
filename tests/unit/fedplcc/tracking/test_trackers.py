"""Every tracker: each round once, however often it is told of it, and in what state it was left."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedplcc.shared.errors import InvalidConfig, Unavailable
from fedplcc.tracking.callbacks import RunEnd
from fedplcc.tracking.destinations import KINDS, make_trackers
from fedplcc.tracking.measurements import flat_configuration, measurements
from fedplcc.tracking.observation import Observation
from fedplcc.tracking.tracker import Tracker
from tests.support.federation.processes import eventually
from tests.support.later import later
from tests.support.records import kept_curves
from tests.support.records.kept_curves import Curves
from tests.support.records.round_results import a_result, a_start

mlflow = later("mlflow")

pytestmark = pytest.mark.filterwarnings("default")  # those of MLflow, wandb and TensorBoard about themselves
WHERE = {"jsonl": "log.jsonl", "tensorboard": "boards", "mlflow": "mlflow", "wandb": "offline"}


def tracker(kind: str, folder: Path) -> Tracker:
    return make_trackers([f"{kind}:{folder / WHERE[kind]}"])[0]


def kept(kind: str, folder: Path, label: str = "shops-1") -> Curves:
    place = folder / WHERE[kind]
    if kind == "jsonl":
        return kept_curves.of_jsonl(place, label)
    if kind == "tensorboard":
        return kept_curves.of_tensorboard(place / label)
    if kind == "wandb":
        return kept_curves.of_wandb(place.glob("wandb/offline-run-*"))
    client = mlflow.MlflowClient(f"sqlite:///{place}/mlflow.db")
    experiment = client.get_experiment_by_name("shops")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id], f"tags.`fedplcc.label` = '{label}'")
    return kept_curves.of_mlflow(client, run.info.run_id)


def rounds(found: Curves) -> dict[str, list[int]]:
    return {name: [number for number, _ in values] for name, values in found.items()}


EXPECTED = {
    name: pytest.approx([measurements(a_result(number))[name] for number in range(1, 5)])
    for name in measurements(a_result(1))
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_tracker_that_is_started_again_keeps_each_round_once(kind: str, tmp_path: Path) -> None:
    first = tracker(kind, tmp_path)
    first.on_start(a_start())
    for number in (1, 2):
        first.on_round(a_result(number))
    if kind == "wandb":
        first.close()  # its library takes a run only once in a process
    # The others are not closed: their process was killed.
    for _ in range(2):
        again = tracker(kind, tmp_path)
        again.on_start(a_start())
        for number in range(1, 5):
            again.on_round(a_result(number))
        again.on_end(RunEnd(status="completed"))
        again.close()
    # wandb answers before the last records are on the disk.
    eventually(lambda: len(kept(kind, tmp_path).get("loss/ce", ())) >= 4, "four rounds are on the disk")
    found = kept(kind, tmp_path)
    assert rounds(found) == {name: [1, 2, 3, 4] for name in EXPECTED}
    assert {name: [value for _, value in values] for name, values in found.items()} == EXPECTED


@pytest.mark.parametrize("kind", ["jsonl", "tensorboard", "mlflow"])
def test_two_runs_share_a_place_and_keep_apart(kind: str, tmp_path: Path) -> None:
    for label in ("shops-1", "shops-2"):
        each = tracker(kind, tmp_path)
        each.on_start(a_start(label=label))
        each.on_round(a_result(1))
        each.on_end(RunEnd(status="completed"))
    for label in ("shops-1", "shops-2"):
        assert rounds(kept(kind, tmp_path, label)) == {name: [1] for name in EXPECTED}


@pytest.mark.parametrize("cut", [1, 20])
def test_a_torn_line_or_record_is_written_again(cut: int, tmp_path: Path) -> None:
    for kind, pattern in (("jsonl", "log.jsonl"), ("tensorboard", "boards/shops-1/events*")):
        first = tracker(kind, tmp_path)
        first.on_start(a_start())
        for number in (1, 2):
            first.on_round(a_result(number))
        (file,) = tmp_path.glob(pattern)
        file.write_bytes(file.read_bytes()[:-cut])
        again = tracker(kind, tmp_path)
        again.on_start(a_start())
        for number in (1, 2, 3):
            again.on_round(a_result(number))
        again.on_end(RunEnd(status="completed"))
        assert rounds(kept(kind, tmp_path)) == {name: [1, 2, 3] for name in EXPECTED}


def test_a_missing_library_is_named_with_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real: Callable[..., Any] = builtins.__import__

    def without(name: str, *arguments: Any, **named: Any) -> Any:
        if name.partition(".")[0] == "wandb":
            raise ModuleNotFoundError("No module named 'wandb'", name="wandb")
        return real(name, *arguments, **named)

    monkeypatch.delitem(__import__("sys").modules, "fedplcc.tracking.wandb_tracker", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'fedplcc\[wandb\]'"):
        make_trackers(["wandb"])


def test_texts_that_name_no_tracker_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="did you mean 'tensorboard'"):
        make_trackers(["tensorbord:x"])


class Away(Tracker):
    """A tracker whose server goes away."""

    kind = "away"

    def __init__(self) -> None:
        super().__init__("")
        self.is_away, self.numbers, self.has_ended = False, list[int](), False

    def on_round(self, result: Any) -> None:
        if self.is_away:
            raise ConnectionError("nobody answers")
        self.numbers.append(result.number)

    def on_end(self, end: RunEnd) -> None:
        self.has_ended = True


def test_a_tracker_that_is_away_holds_nothing_up_and_gets_every_round_later() -> None:
    notes: list[str] = []
    away = Away()
    observation = Observation([away], notes.append)
    observation.start(a_start())
    observation.round(a_result(1))
    away.is_away = True
    for number in (2, 3):
        observation.round(a_result(number))
    assert away.numbers == [1]
    away.is_away = False
    observation.round(a_result(4))
    observation.end(RunEnd(status="completed"))
    assert (away.numbers, away.has_ended) == ([1, 2, 3, 4], True)
    assert len(notes) == 2
    assert "nobody answers" in notes[0]


def test_what_a_tracker_lacks_at_the_end_is_an_error_that_says_how_to_send_it() -> None:
    away = Away()
    observation = Observation([away])
    observation.start(a_start())
    away.is_away = True
    observation.round(a_result(1))
    with pytest.raises(
        Unavailable, match=r"lacks 1 rounds .* the same command on the same folder sends what is missing"
    ):
        observation.end(RunEnd(status="completed"))
    assert not away.has_ended


def test_a_configuration_is_flat_text_and_long_values_are_cut() -> None:
    found = flat_configuration({"run": {"name": "a", "clients": None}, "data": {"classes": ["x" * 600], "mean": [0.5]}})
    assert found["run.name"] == "a"
    assert found["run.clients"] == "null"
    assert found["data.mean"] == "[0.5]"
    assert len(found["data.classes"]) == 500
    assert found["data.classes"].endswith("...")
