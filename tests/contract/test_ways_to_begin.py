"""Every way in which a run begins from what another run trained is known, and closed against tests on what was trained on.

Each search below goes over a whole surface: keys of a configuration, calls in the source, writes of the REST interface. Who
adds a way finds it here, and says what holds the run to the roles of the images by which its model was trained.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from fedplcc.shared.config.run import RunConfig
from tests.support import ROOT
from tests.support.records.rest_document import rest_document

ABOUT_A_BEGINNING = re.compile(r"initial|first model|begins? with|weights|backbone|RUN_ID", re.I)

KEYS = {
    "run.initial_model": "run: and sha256: by the aggregator, which fills in initial_runs; file: by the command",
    "run.initial_runs": "what clients compare their records by",
    "run.initial_classes": "no other images",
    "run.initial_prototypes": "only of the run that initial_model names",
    "run.drop_classes": "no other images",
    "model.weights": "a backbone that comes from a run's folder knows its runs (trainer/weights/store.py)",
    "model.weights_sha256": "as model.weights",
    "training.train": "of model.weights",
    "training.class_weights": "weights of a loss",
}

CALLS = {
    "aggregator/coordinator/run_creation.py with_initial_model": "with the runs that are known to have trained it",
    "fedplcc/runs/initial_model.py with_initial_model": "with the runs of the run.json beside the file",
    "fedplcc/runs/configuration.py with_model_file": "simulate, demo, run start, compare",
    "fedplcc/runs/configuration_check.py with_model_file": "config check, compare",
    "fedplcc/python_api/federation.py with_model_file": "fedplcc.simulate",
    "fedplcc/command/run/starting.py create_run": "of a configuration that read_federation has read",
    "fedplcc/command/run/starting.py upload_model": "the file of that configuration",
    "fedplcc/local/demo.py create_run": "of the federation, whose roles it brings",
    "fedplcc/local/demo.py upload_model": "likewise",
    "fedplcc/simulation/federation.py create_run": "of the federation, whose roles it brings",
    "fedplcc/command/files/weights.py add_weights": "knows the runs of the run.json beside the file",
    "fedplcc/runs/backbone_digests.py add_weights": "an installed package of a fixed list, which no run has trained",
    "gateway/routes/runs.py create_run": "the aggregator's",
    "aggregator/servicer/run_service.py create_run": "RunCreation.create",
    "gateway/routes/runs.py ExtendRun": "the same run, with its own record",
    "fedplcc/simulation/federation.py ExtendRun": "the same run, with its own record",
    "fedplcc/tracking/mlflow_tracker.py create_run": "a run of MLflow",
}

WRITES = {
    "POST /v1/runs": "RunCreation.create",
    "PUT /v1/models/{sha256}": "a run that names it by content is that of the runs that made it",
    "POST /v1/runs/{run_id}/extend": "the same run, with its own record",
    "POST /v1/runs/{run_id}/stages": "the same run: a stage's images are compared with all before",
    "POST /v1/runs/{run_id}/resume": "the same run, with its own record",
    "PUT /v1/runs/{run_id}/clients/{client_id}": "the same run: a client that enters has its own record",
}
BEGIN_NOTHING = {
    "POST /v1/run-configuration/check",
    "PATCH /v1/runs/{run_id}",
    "DELETE /v1/runs/{run_id}",
    "POST /v1/runs/{run_id}/pause",
    "POST /v1/runs/{run_id}/stop",
    "POST /v1/runs/{run_id}/clients/{client_id}/quarantine",
    "POST /v1/runs/{run_id}/clients/{client_id}/release",
    "DELETE /v1/runs/{run_id}/clients/{client_id}",
}


def keys() -> Iterator[tuple[str, str]]:
    """Every key of a run's configuration with its description."""
    schema = RunConfig.model_json_schema()
    for section, table in schema["properties"].items():
        for name in re.findall(r"#/\$defs/(\w+)", str(table)):
            for key, value in schema["$defs"][name].get("properties", {}).items():
                yield f"{section}.{key}", value.get("description", "")


def calls() -> Iterator[str]:
    """Every call in the services and the command that gives a run its first model, begins one or makes it longer."""
    wanted = {"create_run", "with_initial_model", "with_model_file", "upload_model", "add_weights", "ExtendRun"}
    for package in ("aggregator", "trainer", "gateway", "fedplcc"):
        for path in sorted((ROOT / package).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if any((ROOT / "fedplcc" / part).is_symlink() and f"fedplcc/{part}/" in name for part in name.split("/")):
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call):
                    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                    if called in wanted:
                        yield f"{name} {called}"


def test_every_key_by_which_a_run_begins_with_a_model_is_known() -> None:
    every = dict(keys())
    assert len(every) > 80
    assert set(KEYS) <= set(every)
    assert {key for key, text in every.items() if ABOUT_A_BEGINNING.search(f"{key} {text}")} <= set(KEYS)


def test_every_call_that_begins_a_run_is_known() -> None:
    assert set(calls()) == set(CALLS)


def test_every_write_about_a_run_or_a_model_is_known() -> None:
    paths = rest_document()["paths"]
    writes = {f"{way.upper()} {path}" for path, ways in paths.items() for way in ways if way not in ("get", "head")}
    assert {name for name in writes if re.search(r" /v1/(run|model)", name)} == set(WRITES) | BEGIN_NOTHING
