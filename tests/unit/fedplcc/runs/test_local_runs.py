"""`fedplcc run list --local`: local runs with the keys that differ; broken folders are named, many folders are bounded."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fedplcc.command.all_commands import app
from fedplcc.runs.local_runs import TAIL_BYTES, differing_keys, find_runs
from tests.support.federation import tiny_federation
from tests.support.federation.simulations import write_config

BEGAN = 1_700_000_000.0


def write_run(
    folder: Path,
    *,
    method: str = "fedavg",
    began: float = BEGAN,
    means: Sequence[float | None] = (0.5,),
    is_whole: bool = True,
    **keys: Any,
) -> None:
    """Write the files of a run with these mean accuracies by round; the worst domain is a tenth below."""
    run = {"name": folder.name, "method": method, "seed": 0, "rounds": len(means), "clients": ["ann"]}
    config: dict[str, Any] = {"run": run, "method": {}, "training": {"batch_size": 32}}
    for key, value in keys.items():
        section, _, name = key.partition("__")
        config[section] = {**config.get(section, {}), name: value}
    folder.mkdir(parents=True)
    (folder / "federation.json").write_text(json.dumps({"config": config, "clients": {}}))
    if not is_whole:
        return
    accuracies = [None if mean is None else {"ann": mean, "mean": mean, "worst": mean - 0.1} for mean in means]
    lines = [json.dumps({"round": number, "accuracy": each}) for number, each in enumerate(accuracies, 1)]
    (folder / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))
    (folder / "run.json").write_text(json.dumps({"run_id": "x", "config": config, "created_at": began}))


def called(*words: object) -> tuple[int, list[str], list[str]]:
    result = CliRunner().invoke(app, ["run", "list", "--local", *map(str, words)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout.splitlines(), result.stderr.splitlines()


def names(lines: list[str]) -> list[str]:
    """The folders of the table's lines."""
    return [Path(line.split()[0]).name for line in lines[1:-1]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Runs of two methods, in folders as the commands make them."""
    write_run(tmp_path / "digits", began=BEGAN + 2, means=(0.3, 0.6))
    write_run(tmp_path / "digits-2", began=BEGAN + 3, means=(0.9, None), training__batch_size=8)
    write_run(
        tmp_path / "cells/digits/clusters/seed-1", method="fedplcc", means=(0.1, 0.7), method__phi=1.0, run__seed=1
    )
    write_run(tmp_path / "unfinished", is_whole=False, began=BEGAN)
    os.utime(tmp_path / "unfinished/federation.json", (BEGAN + 1, BEGAN + 1))
    write_run(tmp_path / "digits/state/not-a-run")
    write_run(tmp_path / ".trash/old")
    return tmp_path


def test_runs_are_listed_newest_first_with_what_differs(folder: Path) -> None:
    code, lines, said = called(folder)
    assert (code, said) == (0, [])
    assert names(lines) == ["digits-2", "digits", "unfinished", "seed-1"]
    assert lines[0].split() == ["folder", "method", "round", "mean", "worst", "began", "differs", "in"]
    began = datetime.fromtimestamp(BEGAN).strftime("%Y-%m-%d %H:%M").split()
    assert [line.split()[1:] for line in lines[1:-1]] == [
        ["fedavg", "2/2", "90.0%", "80.0%", *began, "run.rounds=2", "run.seed=0", "training.batch_size=8"],
        ["fedavg", "2/2", "60.0%", "50.0%", *began, "run.rounds=2", "run.seed=0", "training.batch_size=32"],
        ["fedavg", "begun,", "1", "-", "-", *began, "run.rounds=1", "run.seed=0", "training.batch_size=32"],
        ["fedplcc", "2/2", "70.0%", "60.0%", *began, "run.rounds=2", "run.seed=1", "training.batch_size=32"],
    ], "method.phi is the same in all runs of its method"
    assert lines[-1] == "4 of 4 runs"


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("name", ["seed-1", "digits", "digits-2", "unfinished"]),
        ("mean", ["digits-2", "seed-1", "digits", "unfinished"]),
        ("worst", ["digits-2", "seed-1", "digits", "unfinished"]),
    ],
)
def test_runs_can_be_ordered_and_cut(order: str, expected: list[str], folder: Path) -> None:
    assert names(called(folder, "--order", order)[1]) == expected
    code, lines, _ = called(folder, "--order", order, "--limit", 2)
    assert (code, names(lines), lines[-1]) == (0, expected[:2], "2 of 4 runs")


def test_a_program_gets_a_line_for_each_run_and_each_broken_folder(folder: Path) -> None:
    (folder / "digits/run.json").write_text("{")
    _, lines, said = called(folder, "--json")
    documents = [json.loads(line) for line in lines]
    assert said == []
    assert documents[0] == {
        "folder": str(folder / "digits-2"),
        "method": "fedavg",
        "seed": 0,
        "round": 2,
        "total_rounds": 2,
        "has_ended": True,
        "score": "accuracy",
        "mean_accuracy": 0.9,
        "worst_accuracy": 0.8,
        "created_at": "2023-11-14T22:13:23+00:00",
        "differs": {"run.method": "fedavg", "run.rounds": "2", "run.seed": "0", "training.batch_size": "8"},
        "problem": None,
    }
    assert [document["folder"] for document in documents if document["problem"]] == [str(folder / "digits")]


@pytest.mark.parametrize(
    ("file", "text", "problem"),
    [
        ("run.json", "{", "does not hold a whole run"),
        ("run.json", "[]", "does not hold a whole run"),
        ("run.json", '{"a":' * 50_000, "does not hold a whole run"),
        ("run.json", '{"title": "a dashboard"}', "its files do not say 'config'"),
        (
            "run.json",
            '{"config": {"run": {"method": "x", "seed": 0, "rounds": 1}}, "created_at": 1e300}',
            "does not hold",
        ),
        ("metrics.jsonl", '{"round": 1, "accur', "does not hold a whole run"),
        ("metrics.jsonl", None, "cannot be read (No such file or directory)"),
    ],
)
def test_a_broken_folder_is_named_and_hides_no_other(file: str, text: str | None, problem: str, folder: Path) -> None:
    (folder / "digits" / file).unlink()
    if text is not None:
        (folder / "digits" / file).write_text(text)
    code, lines, said = called(folder)
    assert (code, names(lines)) == (0, ["digits-2", "unfinished", "seed-1"])
    (sentence,) = said
    assert sentence.startswith(f"fedplcc: {folder / 'digits'} ")
    assert problem in sentence


def test_the_search_is_bounded_and_follows_no_link(folder: Path) -> None:
    (folder / "loop").symlink_to(folder)
    assert len(find_runs([folder]).runs) == 4
    assert find_runs([folder]).is_whole
    few = find_runs([folder], max_runs=2)
    assert (len(few.runs), few.is_whole) == (2, False)
    assert not find_runs([folder], max_folders=2).is_whole
    assert len(find_runs([folder], max_depth=1).runs) == 3


def test_of_a_long_history_its_end_is_read(tmp_path: Path) -> None:
    means = [0.2] * (TAIL_BYTES // 60) + [0.8]
    write_run(tmp_path / "long", means=means)
    (run,) = find_runs([tmp_path]).runs
    assert (tmp_path / "long/metrics.jsonl").stat().st_size > TAIL_BYTES
    assert (run.round, run.mean) == (len(means), 0.8)


def test_the_score_of_a_run_stands_in_the_list(folder: Path) -> None:
    line = {"round": 3, "accuracy": {"mean": 0.95, "worst": 0.9}, "balanced_accuracy": {"mean": 0.4, "worst": 0.25}}
    with (folder / "digits/metrics.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")
    _, lines, _ = called(folder, "--order", "mean")
    assert names(lines)[-2:] == ["digits", "unfinished"]
    assert next(line for line in lines if "digits " in line).split()[3:6] == ["balanced", "40.0%", "25.0%"]


def test_the_usual_folders_hold_what_simulate_and_compare_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert called() == (
        0,
        ["there are no runs in fedplcc-runs, fedplcc-comparisons; train one with: fedplcc simulate"],
        [],
    )
    tiny_federation.write_data(tmp_path)
    write_config(tmp_path / "run.toml", tiny_federation.document(tmp_path, run={"rounds": 1}))
    (tmp_path / "compare.toml").write_text('[datasets.stripes]\nconfig = "run.toml"\n[rows.avg]\nmethod = "fedavg"\n')
    for words in (["simulate", "--config", "run.toml"], ["compare"]):
        done = CliRunner().invoke(app, [*words, "--device", "cpu"])
        assert done.exit_code == 0, done.output
    code, lines, said = called("--order", "name")
    assert (code, said) == (0, [])
    assert [line.split()[:3] for line in lines[1:-1]] == [
        ["fedplcc-comparisons/comparison/stripes/avg/seed-0", "fedavg", "1/1"],
        ["fedplcc-runs/tiny", "fedplcc", "1/1"],
    ]


def test_many_broken_folders_are_counted(tmp_path: Path) -> None:
    for number in range(12):
        (tmp_path / f"{number}").mkdir()
        (tmp_path / f"{number}" / "run.json").touch()
    code, lines, said = called(tmp_path)
    assert (code, len(said)) == (0, 11)
    assert said[-1] == "fedplcc: and 2 more folders like these; --json names all"
    assert lines == [f"there are no runs in {tmp_path}; train one with: fedplcc simulate"]
    assert len(called(tmp_path, "--json")[1]) == 12


def test_keys_that_one_run_lacks_differ(tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    write_run(tmp_path / "b", training__clip_norm=40.0)
    assert differing_keys(find_runs([tmp_path]).runs) == ["training.clip_norm"]
    assert [line.split()[-1] for line in called(tmp_path, "--order", "name")[1][1:3]] == [
        "training.clip_norm=-",
        "training.clip_norm=40.0",
    ]


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert called(tmp_path / "none")[::2] == (
        2,
        [f"fedplcc: there is no folder {tmp_path / 'none'}; name one that holds runs"],
    )
