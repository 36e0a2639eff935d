"""Runs that begin with a model, as people start them: from a file, from another run, and with every slip on the way."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from typer.testing import CliRunner

from fedplcc.aggregator.ledger.limits import Limits
from fedplcc.command.all_commands import app
from fedplcc.command.exit_codes import ExitCode
from fedplcc.runs.configuration import Overrides, read_federation
from fedplcc.shared.config.run import FederationFile
from fedplcc.shared.convert.uploads import initial_model_to_proto
from fedplcc.shared.documents import InitialModel, Problem
from fedplcc.shared.errors import InvalidConfig, MalformedRequest
from fedplcc.shared.gen.fedplcc.v1 import run_service_pb2 as run_pb2
from fedplcc.shared.gen.fedplcc.v1 import run_service_pb2_grpc as run_grpc
from fedplcc.shared.tensors import to_bytes
from fedplcc.shared.types import BlobRef
from fedplcc.shared.wire.channels import open_channel
from fedplcc.shared.wire.statuses import translated
from tests.support.federation import tiny_federation
from tests.support.federation.numpy_client import CLASSES, NumpyClient
from tests.support.federation.processes import eventually
from tests.support.federation.served_gateway import ServedGateway
from tests.support.federation.simulations import write_config

DATA = to_bytes(NumpyClient("ann").first_model(seed=7))
SHA256 = hashlib.sha256(DATA).hexdigest()
OCTETS = {"Content-Type": "application/octet-stream"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedGateway]:
    """A gateway and an aggregator for all tests of this module."""
    with ServedGateway(tmp_path_factory.mktemp("state"), limits=Limits(max_blob_bytes=3 << 20)) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    tiny_federation.write_data(folder)
    return folder


# By REST


def problem(answer: httpx.Response, status: int, code: str) -> str:
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json"), answer.text
    found = Problem.model_validate_json(answer.content)
    assert found.code == code
    return found.detail or ""


def test_a_model_is_put_below_its_sha256_and_again_without_effect(served: ServedGateway) -> None:
    for name in ("best.safetensors", "again.safetensors"):
        answer = served.http.put(f"/v1/models/{SHA256}", params={"name": name}, content=DATA, headers=OCTETS)
        stored = InitialModel.model_validate_json(answer.content)
        assert (answer.status_code, stored.size_bytes) == (200, len(DATA))
    run_id = served.create(run={"initial_model": stored.initial_model})
    event = served.http.get(f"/v1/runs/{run_id}/events", params={"after": 0}).json()["events"][0]
    assert event["data"]["initial_model"] == {"sha256": SHA256, "name": "best.safetensors"}
    manifest = served.http.get(f"/v1/runs/{run_id}/manifest").json()
    assert manifest["initial_model"] == event["data"]["initial_model"]
    assert manifest["config"]["run"]["initial_model"] == f"sha256:{SHA256}"


@pytest.mark.parametrize(
    ("sha256", "content", "status", "code", "said"),
    [
        (SHA256[::-1], DATA, 400, "BLOB_CORRUPT", "do not have the announced SHA-256"),
        (hashlib.sha256(b"x" * 50).hexdigest(), b"x" * 50, 400, "INVALID_MODEL", "no model to begin with"),
        ("ab" * 32, b"x" * (9 << 20), 413, "BLOB_TOO_LARGE", "at most 3145728 bytes here, this one 9437184"),
        ("ab" * 32, b"", 400, "MALFORMED_REQUEST", "size_bytes"),
        ("AB" * 32, DATA, 400, "MALFORMED_REQUEST", "sha256"),
        ("best", DATA, 400, "MALFORMED_REQUEST", "sha256"),
    ],
)
def test_what_cannot_be_put_is_refused_with_a_problem_document(
    served: ServedGateway, sha256: str, content: bytes, status: int, code: str, said: str
) -> None:
    assert said in problem(served.http.put(f"/v1/models/{sha256}", content=content, headers=OCTETS), status, code)


def test_a_body_of_unknown_length_is_refused(served: ServedGateway) -> None:
    answer = served.http.put(f"/v1/models/{SHA256}", content=iter([DATA]))
    assert "Content-Length" in problem(answer, 411, "LENGTH_REQUIRED")


@pytest.mark.parametrize("size_bytes", [2**63, 10**20 - 1])
def test_a_size_beyond_the_protocols_numbers_is_too_large_and_no_bug(served: ServedGateway, size_bytes: int) -> None:
    base = served.http.base_url
    connection = HTTPConnection(
        base.host, base.port, timeout=20
    )  # httpx sends no length that its content does not have
    with closing(connection):
        connection.putrequest("PUT", f"/v1/models/{SHA256}")
        connection.putheader("Content-Length", str(size_bytes))
        connection.endheaders()
        raw = connection.getresponse()
        answer = httpx.Response(raw.status, headers=raw.getheaders(), content=raw.read())
    assert str(size_bytes) in problem(answer, 413, "BLOB_TOO_LARGE")


def test_a_sender_that_goes_away_leaves_nothing_behind(served: ServedGateway) -> None:
    staging = served.federation.folder / "staging"

    def broken() -> Iterator[bytes]:
        yield bytes(1 << 20)
        eventually(lambda: any(staging.iterdir()), "what came is being kept")
        raise ConnectionAbortedError

    headers = {**OCTETS, "Content-Length": str(2 << 20)}
    with pytest.raises(ConnectionAbortedError):
        served.http.put(f"/v1/models/{'ab' * 32}", content=broken(), headers=headers)
    eventually(lambda: not any(staging.iterdir()), "it is dropped")
    assert served.http.get("/readyz").status_code == 200


def parts(*named: Any) -> Iterator[run_pb2.UploadInitialModelRequest]:
    """A header for each blob and name, data for each text."""
    for part in named:
        if isinstance(part, bytes):
            yield run_pb2.UploadInitialModelRequest(data=part)
        elif part is None:
            yield run_pb2.UploadInitialModelRequest()
        else:
            yield run_pb2.UploadInitialModelRequest(header=initial_model_to_proto(*part))


HEADER = (BlobRef("model", "cd" * 32, 100), "name")


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ((), "begins with its header"),
        ((b"x",), "begins with its header"),
        ((None,), "begins with its header"),
        ((HEADER, HEADER), "has one header"),
        ((HEADER, None), "has one header"),
        (((BlobRef("head", "cd" * 32, 100), "name"),), "role"),
        (((HEADER[0], "x" * 257),), "name"),
        (((HEADER[0], "a\nb"),), "name"),
    ],
)
def test_an_upload_that_breaks_the_contract_is_refused(served: ServedGateway, sent: Any, said: str) -> None:
    with open_channel(served.settings.aggregator) as channel:
        stub = run_grpc.RunServiceStub(channel)
        with pytest.raises(MalformedRequest, match=said), translated():
            list(stub.UploadInitialModel(parts(*sent), timeout=20))


# From the command line


def a_config(folder: Path, initial_model: str) -> Path:
    path = folder / "run.toml"
    path.write_text(
        f'[run]\nname = "warm"\nmethod = "fedplcc"\nclients = ["ann", "bob"]\ninitial_model = "{initial_model}"\n'
        f"[data]\nclasses = {list(CLASSES)}\n"
    )
    return path


def started(served: ServedGateway, config: Path, *flags: str) -> tuple[int, str, str]:
    arguments = ["run", "start", "--config", str(config), "--gateway", served.url, *flags]
    result = CliRunner().invoke(app, arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, " ".join(result.stderr.split())


@pytest.mark.parametrize("form", ["file:models/warm.safetensors", "models/warm.safetensors"])
def test_a_file_beside_the_configuration_is_sent_and_the_run_names_its_content(
    served: ServedGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    data = to_bytes(NumpyClient("ann").first_model(seed=len(form)))
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "warm.safetensors").write_bytes(data)
    monkeypatch.chdir("/")
    code, text, said = started(served, a_config(tmp_path, form), "--json")
    assert code == 0
    assert json.loads(text)["config"]["run"]["initial_model"] == f"sha256:{hashlib.sha256(data).hexdigest()}"
    assert "sending warm.safetensors" in said
    event = served.federation.events(json.loads(text)["run_id"], "run_created")[0]
    assert event.data["initial_model"]["name"] == "warm.safetensors"


def test_a_file_on_the_command_line_is_looked_for_in_the_present_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "m.safetensors").write_bytes(DATA)
    config = a_config(tmp_path, "file:gone.safetensors")
    monkeypatch.chdir(tmp_path / "here")
    found = read_federation(config, Overrides(assignments=["run.initial_model=m.safetensors"]))
    assert found.config.run.initial_model == f"sha256:{SHA256}"
    assert found.initial_model_file == tmp_path / "here" / "m.safetensors"
    with pytest.raises(InvalidConfig, match=r"cannot read .*gone\.safetensors: No such file"):
        read_federation(config)


def written(folder: Path, kind: str) -> None:
    tensors = {"w": np.ones(3, np.float32)}
    path = folder / "model.safetensors"
    if kind == "pickle":
        torch.save({"w": torch.ones(3)}, path)
    elif kind == "old pickle":
        torch.save({"w": torch.ones(3)}, path, _use_new_zipfile_serialization=False)
    elif kind == "text":
        path.write_text("a model")
    elif kind == "half":
        save_file({"w": tensors["w"].astype(np.float16)}, path)
    elif kind == "metadata":
        save_file(tensors, path, metadata={"format": "pt"})
    elif kind == "not finite":
        save_file({"w": np.array([np.nan], np.float32)}, path)
    elif kind == "large":
        save_file({"w": np.ones(1 << 20, np.float32)}, path)
    elif kind == "folder":
        path.mkdir()


@pytest.mark.parametrize(
    ("kind", "code", "said"),
    [
        ("missing", ExitCode.USAGE, "model.safetensors: No such file or directory"),
        ("folder", ExitCode.USAGE, "model.safetensors: Is a directory"),
        ("pickle", ExitCode.USAGE, "was written by torch.save or pickle, and opening such a file may run code"),
        ("old pickle", ExitCode.USAGE, "was written by torch.save or pickle, and opening such a file may run code"),
        ("text", ExitCode.USAGE, "is no safetensors file of float32 and int64 tensors"),
        ("half", ExitCode.USAGE, "tensor 'w' is neither F32 nor I64); write it with safetensors.torch.save_file"),
        ("metadata", ExitCode.USAGE, "has __metadata__, which does not travel); write it with"),
        ("not finite", ExitCode.USAGE, "tensor 'w' has a value that is NaN or infinite"),
        ("large", ExitCode.FAILED, "a model has at most 3145728 bytes here, this one 41943"),
    ],
)
def test_a_file_that_is_no_model_ends_in_one_sentence(
    served: ServedGateway, tmp_path: Path, kind: str, code: ExitCode, said: str
) -> None:
    written(tmp_path, kind)
    found, text, error = started(served, a_config(tmp_path, "file:model.safetensors"))
    assert found == code, error
    assert "run warm-" not in text
    assert said in error


@pytest.mark.parametrize(
    ("initial_model", "said"),
    [
        ("run:no-such-run", "run.initial_model = 'run:no-such-run': there is no run 'no-such-run'"),
        (f"sha256:{'ab' * 32}", "the aggregator holds no model sha256:abab"),
    ],
)
def test_a_model_that_the_aggregator_does_not_know_ends_in_one_sentence(
    served: ServedGateway, tmp_path: Path, initial_model: str, said: str
) -> None:
    code, text, error = started(served, a_config(tmp_path, initial_model))
    assert (code, text) == (ExitCode.FAILED, "")
    assert said in error


# Simulated and trained for real


def a_round(images: Path, initial_model: str | None = None) -> FederationFile:
    return tiny_federation.federation(
        tiny_federation.document(images, run={"rounds": 1, "initial_model": initial_model})
    )


def simulate(config: Path, out: Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["simulate", "--config", str(config), "--out", str(out), "--device", "cpu"])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, " ".join(result.stderr.split())


def test_a_simulation_knows_no_other_runs_and_says_what_to_write(images: Path, tmp_path: Path) -> None:
    values = tiny_federation.document(images, run={"initial_model": "run:other-1234"})
    code, error = simulate(write_config(tmp_path / "tiny_federation.toml", values), tmp_path / "out")
    assert code == ExitCode.USAGE
    assert "write file:PATH" in error
    assert not (tmp_path / "out").exists()
