"""A stranger's method, model and augmentation, in a package of their own that nothing here imports by itself."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedplcc.shared.config.toml_text import toml_tables
from fedplcc.shared.errors import InvalidConfig
from fedplcc.shared.steering import StopRun
from tests.support.federation import tiny_federation
from tests.support.federation.forks import typed
from tests.support.federation.grpc_client import ENDED, RUN_S, RunControl
from tests.support.federation.processes import Federation, eventually
from tests.support.federation.simulations import hashed
from tests.support.federation.strangers import AUGMENTATION, METHOD, MODEL, method_text, strange, write_package

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ALLOWED = ("--allow-code", MODEL, "--allow-code", AUGMENTATION, "--allow-method", METHOD)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A stranger's folder: a package, data and a configuration."""
    write_package(tmp_path)
    tiny_federation.write_data(tmp_path)
    return tmp_path


@pytest.fixture
def federation(folder: Path) -> Iterator[Federation]:
    with Federation(folder) as federation:
        yield federation


def values(folder: Path) -> dict[str, Any]:
    return strange(tiny_federation.document(folder, "fedavg", training={"local_steps": 2}))


def command(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """A command in the stranger's folder, as `fedplcc` starts: nothing of the folder is on its path."""
    return typed(*map(str, arguments), cwd=folder, trains=True)


def done(folder: Path, *arguments: object) -> str:
    result = command(folder, *arguments)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_it_runs_in_simulate_compare_and_over_the_network_in_the_same_bytes(
    folder: Path, federation: Federation
) -> None:
    file = folder / "run.toml"
    file.write_text(toml_tables(values(folder)))
    done(folder, "simulate", "--config", file, "--out", "one")
    done(folder, "simulate", "--config", file, "--out", "two", "--jobs", 2)
    assert hashed(folder / "one") == hashed(folder / "two")
    evaluate = ("model", "evaluate", "one", "--data", f"npz:{folder / 'left'}.npz")
    refused = command(folder, *evaluate)
    assert (refused.returncode, "if you trust it, name a configuration file with this method" in refused.stderr) == (
        2,
        True,
    )
    done(folder, *evaluate, "--config", file)
    (folder / "compare.toml").write_text(
        '[compare]\nseeds = [0]\n[datasets.stripes]\nconfig = "run.toml"\n'
        f'[rows.pull]\nmethod = "{METHOD}"\nset = {{ "method.lambda1" = 5.0 }}\n'
    )
    done(folder, "compare", "--config", "compare.toml", "--out", "cells", "--jobs", 2)
    assert hashed(folder / "cells" / "stripes" / "pull" / "seed-0") == hashed(folder / "one")

    federation.start_aggregator("--allow-method", METHOD)
    for client in tiny_federation.CLIENTS:
        federation.start_trainer(client, f"npz:{folder / client}.npz", *ALLOWED)
    control = RunControl(federation.address, tls=federation.operator_tls)
    run_id = control.create(tiny_federation.run_document(values(folder))).run_id
    lines = "".join(f"{line}\n" for line in control.end_of(run_id))
    assert lines == (folder / "one" / "metrics.jsonl").read_text()
    control.close()
    federation.processes["aggregator"].end()
    state = federation.folder / "aggregator"
    again = ("state", "audit", state, "--replay", run_id, "--round", lines.count("\n"))
    refused = command(folder, *again)
    assert (refused.returncode, f"--allow-method {METHOD}" in refused.stderr) == (2, True)
    assert "equal" in done(folder, *again, "--allow-method", METHOD)
    looked = command(folder, "doctor", state)
    assert (looked.returncode, "runs: 1 completed" in looked.stdout) == (0, True), looked.stdout


@pytest.mark.full
def test_who_did_not_list_it_imports_nothing_and_says_so(folder: Path, federation: Federation) -> None:
    """The aggregator first, then a trainer, then an aggregator that knew the method and knows it no more."""
    trace = folder / "imported"
    (folder / "strangers" / "pull.py").write_text(method_text() + f"\nopen({str(trace)!r}, 'a').write('x')\n")
    aggregator = federation.start_aggregator()
    control = RunControl(federation.address, tls=federation.operator_tls)
    document = tiny_federation.run_document(values(folder))
    with pytest.raises(InvalidConfig) as refused:
        control.create(document)
    assert f"method '{METHOD}' is code of another package that the owner of this process has not listed" in str(
        refused.value
    )
    assert not trace.exists()

    aggregator.end()
    aggregator.arguments += ["--allow-method", METHOD]
    federation.start_aggregator()
    trace.unlink()
    run_id = control.create(document).run_id
    for client in tiny_federation.CLIENTS:
        federation.start_trainer(client, f"npz:{folder / client}.npz", "--allow-code", MODEL)

    def problem() -> Any:
        clients = control.stub.ListClients(_all_clients()).clients
        return next((each.problem for each in clients if each.problem.is_fatal), None)

    told = eventually(problem, "a trainer reports the problem", RUN_S)
    assert told.reason == "CODE_NOT_ALLOWED"
    assert f"--allow-method {METHOD}" in told.detail
    assert not trace.exists()

    aggregator.kill()
    del aggregator.arguments[-2:]
    federation.start_aggregator()
    other = control.create(tiny_federation.run_document(tiny_federation.document(folder, "fedavg"))).run_id
    control.end_of(other)
    parked = control.get(run_id)
    assert parked.status not in ENDED
    assert control.steer(run_id, StopRun())
    assert not trace.exists()
    control.close()


def test_the_contract_is_tried_on_it(folder: Path) -> None:
    said = done(folder, "doctor", "--method", METHOD)
    assert "FAILED" not in said
    assert re.search(rf"{re.escape(METHOD)}: (\d{{2,}}) of \1 checks passed", said)


@pytest.mark.full
@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("pull_B = 1 -", "pull_B = __import__('random').random() -", "the loss draws from a global random state"),
        ("    return mean_per_class", "    import torch\n    return mean_per_class", "its server half imports torch"),
        ('    """Coefficient of the pull. Zero leaves it out."""\n', "", "hyper-parameter lambda1 has no docstring"),
        ("https://", "", "no link (https://...) to the paper"),
        ('"""FedPull: clients', '"""Clients', "the module's docstring must begin with 'NAME: SENTENCE'"),
    ],
)
def test_a_method_that_breaks_the_contract_is_refused_with_the_sentence(
    before: str, after: str, said: str, tmp_path: Path
) -> None:
    assert before in method_text()
    write_package(tmp_path, pull=method_text().replace(before, after))
    result = command(tmp_path, "doctor", "--method", METHOD, "--json")
    assert result.returncode == 1, result.stderr
    problems = json.loads(result.stdout.splitlines()[-1])["problems"]
    assert any(said in problem["problem"] for problem in problems), problems


def _all_clients() -> Any:
    from fedplcc.shared.gen.fedplcc.v1 import run_service_pb2

    return run_service_pb2.ListClientsRequest()
