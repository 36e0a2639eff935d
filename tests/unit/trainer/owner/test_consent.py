"""A run's document names code and weights: a trainer touches nothing that the owner of its site did not list or keep."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedplcc.shared.config.run import parse_run_config
from fedplcc.shared.config.settings import TrainerSettings, from_command_line, load
from fedplcc.shared.config.tables.model import ModelSection
from fedplcc.shared.errors import CodeNotAllowed, DataNotAllowed, InvalidConfig, WeightsMissing
from fedplcc.shared.types import RunSpec, Task, TaskKind
from fedplcc.trainer.models import build_model
from fedplcc.trainer.owner.consent import NO_CONSENT, Consent
from fedplcc.trainer.task.client_state import ClientStates
from fedplcc.trainer.task.hints import HINTS
from fedplcc.trainer.task.runner import TaskRunner
from fedplcc.trainer.task.site import ClientSite
from fedplcc.trainer.weights.store import WeightsStore
from tests.support import ROOT
from tests.support.later import later
from tests.unit.trainer.builders import npz
from tests.unit.trainer.memory_aggregator import MemoryAggregator

timm = later("timm")

KNOWN = (
    "torch.hub:load",
    "torch:load",
    "torch.hub:load_state_dict_from_url",
    "torchvision.models:resnet18",
    "timm.models:create_model",
    "timm.models.hub:load_model_config_from_hf",
    "os:system",
    "os:execv",
    "posix:system",
    "subprocess:run",
    "subprocess:Popen",
    "builtins:exec",
    "builtins:eval",
    "builtins:__import__",
    "pickle:loads",
    "marshal:loads",
    "runpy:run_path",
    "importlib:import_module",
    "antigravity:geohash",
    "this:s",
    "numpy:load",
    "urllib.request:urlopen",
    "shutil:rmtree",
    "ctypes:CDLL",
    "__main__:main",
    "fedplcc.trainer.models:build_model",
    "fedplcc.trainer.factories:import_factory",
    "sitecustomize:main",
    "folder:images",
    "torch..hub:load",
    "no_such_package:make",
)
"""Code that would do something, and names that are almost another kind of model."""
MALFORMED = (
    "os:path.join",
    "os.system",
    "os:",
    ":system",
    ".os:system",
    "os:system\n",
    " os:system",
    "os:system:x",
    "os/path:join",
    "torch.hub:load()",
    "timm:hf-hub:somebody/something",
    "timm:../../weights",
    "resnet10:load ",
    "\N{CYRILLIC SMALL LETTER O}s:system()",
)

PROGRAM = """
import json, sys
from fedplcc.shared.errors import FedplccError
from fedplcc.shared.config.run import parse_run_config
from fedplcc.shared.types import RunSpec, Task, TaskKind
from tests.unit.trainer.memory_aggregator import MemoryAggregator
from fedplcc.trainer.task.client_state import ClientStates
from fedplcc.trainer.task.runner import TaskRunner
from fedplcc.trainer.task.site import ClientSite
from pathlib import Path

data, states, names = json.load(sys.stdin)
runner = TaskRunner(ClientSite.at("ann", "hospital", data, device="cpu"), ClientStates(Path(states)))

def outcome(name, augment=()):
    config = parse_run_config({
        "run": {"method": "fedavg", "rounds": 1, "clients": ["ann"]},
        "model": {"name": name},
        "data": {"classes": ["a", "b"], "image_size": 16},
        "training": {"augment": augment},
    })
    run = RunSpec(run_id="run-1", config_json=config.canonical_json, config_hash=config.hash)
    try:
        runner.client_for(run)
        runner.perform(Task(kind=TaskKind.INIT, run=run, total_rounds=1), MemoryAggregator())
    except FedplccError as error:
        return error.reason
    return "done"

begun = outcome("cnn4"), outcome("nobody.knows:this")
imported = []
sys.addaudithook(lambda event, arguments: event == "import" and imported.append(arguments[0]))
before = set(sys.modules)
reasons = {name: outcome(name) for name in names}
augmented = {name: outcome("cnn4", [name]) for name in names}
print(json.dumps([begun, reasons, augmented, imported, sorted(set(sys.modules) - before)]))
"""


@pytest.fixture
def data(tmp_path: Path) -> str:
    images = np.zeros((4, 16, 16, 3), np.uint8)
    labels = np.array([0, 1, 0, 1])
    return npz(tmp_path / "data.npz", images, labels, ["a", "b"])


def document(**sections: Any) -> dict[str, Any]:
    return {
        "run": {"method": "fedavg", "rounds": 1, "clients": ["ann"], **sections.pop("run", {})},
        "data": {"classes": ["a", "b"], **sections.pop("data", {})},
        **sections,
    }


def importable() -> list[str]:
    """A name in every module of the standard library and every installed package."""
    # timm:NAME is a model that is built in, whatever NAME is.
    packages = {name for name in packages_distributions() if name.isidentifier() and name != "timm"}
    names = {f"{module}:{name}" for module in sys.stdlib_module_names | packages for name in ("main", "load")}
    return sorted(names.union(KNOWN))


def test_a_trainer_imports_nothing_that_a_run_names(data: str, tmp_path: Path) -> None:
    names = importable()
    assert len(names) > 500
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps([data, str(tmp_path / "states"), names]),
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    begun, reasons, augmented, imported, modules = json.loads(ended.stdout)
    assert {name: reason for name, reason in augmented.items() if reason != "CODE_NOT_ALLOWED"} == {}
    assert begun == ["done", "CODE_NOT_ALLOWED"]
    assert {name: reason for name, reason in reasons.items() if reason != "CODE_NOT_ALLOWED"} == {}
    assert (imported, modules) == ([], [])


@pytest.mark.parametrize("name", MALFORMED)
def test_a_document_with_a_name_of_another_form_is_no_run(name: str) -> None:
    with pytest.raises(InvalidConfig):
        parse_run_config(document(model={"name": name}))


@pytest.mark.parametrize("name", KNOWN)
def test_data_and_the_rest_of_a_document_name_no_code(name: str) -> None:
    for sections in (
        {"data": {"name": name}},
        {"data": {"data": name}},
        {"data": {"source": name}},
        {"data": {"mean": name}},
        {"training": {"augment": name}},
        {"training": {"optimizer": name}},
        {"run": {"method": name}},
        {"run": {"initial_model": name}},
        {"method": {"loss": name}},
        {"model": {"name": "resnet10", "stem": name}},
        {"model": {"name": "resnet10", "options": {"factory": name}}},
        {"model": {"name": "timm:test_resnet", "options": {"factory": name}}},
    ):
        with pytest.raises(InvalidConfig):
            parse_run_config(document(**sections))


def test_only_the_very_name_that_is_listed_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "listed_package").mkdir()
    (tmp_path / "listed_package" / "__init__.py").write_text("raise AssertionError('imported')")
    consent = Consent(code=frozenset({"listed_package:make"}))
    for name in ("listed_package:make_more", "listed_package.models:make", "listed:make", "Listed_package:make"):
        with pytest.raises(CodeNotAllowed):
            build_model(ModelSection(name=name), 2, 16, 0, consent=consent)
    assert "listed_package" not in sys.modules


def test_a_run_with_weights_opens_nothing_but_the_store_and_downloads_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a run says, only a file of the store's folder is opened, and its name is a SHA-256."""
    opened: list[str] = []
    libraries = sysconfig.get_path("purelib")

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and not str(arguments[0]).startswith(libraries):  # a warning reads the line that it names
            opened.append(str(arguments[0]))

    sys.addaudithook(note)
    monkeypatch.setattr(timm, "create_model", lambda *_, **__: pytest.fail("timm was asked"))
    consent = Consent(weights=WeightsStore(tmp_path))
    opened.clear()
    section = ModelSection(name="timm:test_resnet", weights="passwd", weights_sha256="0" * 64)
    with pytest.raises(WeightsMissing, match="this site has no backbone 'passwd'"):
        build_model(section, 2, 32, 0, consent=consent)
    assert set(opened) == {f"{tmp_path}/{'0' * 64}.safetensors", f"{tmp_path}/passwd.json"}
    for name in ("../passwd", "/etc/passwd", "a b", ""):
        with pytest.raises(InvalidConfig):
            parse_run_config(document(model={"name": "timm:x", "weights": name, "weights_sha256": "0" * 64}))


@pytest.mark.parametrize(
    "model", [{"name": "hospital.models:make"}, {"name": "timm:test_resnet"}, {"name": "resnet10"}]
)
def test_the_flags_of_a_consent_give_a_trainer_the_same_one(model: dict[str, Any]) -> None:
    consent = Consent.to(ModelSection.model_validate(model))
    flags = ["--client=ann", "--data=digits:mnist", *consent.flags]
    assert Consent.of_owner(from_command_line(TrainerSettings, "trainer", "", flags)) == consent
    assert len(consent.flags) == 1 + (":make" in model["name"])


def test_public_images_are_read_where_the_owner_says_and_never_where_a_run_says() -> None:
    with pytest.raises(DataNotAllowed, match="'npz:/etc/passwd', and the owner of this site has named none") as refused:
        NO_CONSENT.public_images("npz:/etc/passwd")
    assert "--public-data" in refused.value.detail
    listed = {"client": "ann", "data": "digits:mnist", "public_data": "digits:synth"}
    assert Consent.of_owner(load(TrainerSettings, listed)).public_images("npz:/etc/passwd") == "digits:synth"


def test_who_runs_their_own_configuration_consents_to_its_public_images() -> None:
    config = parse_run_config(document(run={"method": "fcclplus"}, public={"data": "digits:synth"}))
    consent = Consent.to_run(config)
    assert consent.public_images(config.public.data) == "digits:synth"
    flags = ["--client=ann", "--data=digits:mnist", *consent.flags]
    assert Consent.of_owner(from_command_line(TrainerSettings, "trainer", "", flags)) == consent


def test_a_run_with_public_images_at_a_site_that_named_none_opens_nothing(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = parse_run_config(
        document(run={"method": "fcclplus"}, data={"image_size": 16}, public={"data": "npz:/nowhere"})
    )
    run = RunSpec(run_id="run-1", config_json=config.canonical_json, config_hash=config.hash)
    runner = TaskRunner(ClientSite.at("ann", "hospital", data, device="cpu"), ClientStates(tmp_path / "states"))
    monkeypatch.setattr(
        "fedplcc.trainer.learning.public_images.load_public", lambda *_, **__: pytest.fail("it was opened")
    )
    with pytest.raises(DataNotAllowed):
        runner.perform(Task(kind=TaskKind.INIT, run=run, total_rounds=1), MemoryAggregator())


def test_the_refusal_names_the_code_and_what_allows_it() -> None:
    with pytest.raises(CodeNotAllowed) as refused:
        NO_CONSENT.check_code("torch.hub:load")
    assert "'torch.hub:load'" in refused.value.detail
    assert "--allow-code torch.hub:load" in refused.value.detail
    assert "--allow-code" in HINTS[refused.value.reason]
