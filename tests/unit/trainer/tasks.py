"""Tasks of a client whose data have two of its run's three classes, and who performs them."""

import tempfile
from pathlib import Path
from typing import Any

from fedplcc.shared.tensors import prototypes_to_bytes, to_bytes
from fedplcc.shared.types import GLOBAL_CLUSTER, MODEL, Payload, PrototypeSet, RunSpec, Task, TaskKind, Update
from fedplcc.trainer.models import state_arrays
from fedplcc.trainer.owner.consent import NO_CONSENT, Consent
from fedplcc.trainer.task.client_state import ClientStates
from fedplcc.trainer.task.runner import TaskRunner
from fedplcc.trainer.task.site import ClientSite
from tests.unit.trainer.builders import a_config, a_model, a_spec, config_of
from tests.unit.trainer.memory_aggregator import MemoryAggregator

CLASSES = ("a", "b", "c")


def a_run(method_name: str = "fedplcc", /, **sections: Any) -> RunSpec:
    own: dict[str, Any] = {
        "run": {"rounds": 3, "clients": ["ann"]},
        "data": {"classes": CLASSES},
        "training": {"local_steps": 2},
    }
    merged = {name: {**own.get(name, {}), **sections.get(name, {})} for name in {**own, **sections}}
    return a_spec(a_config(method_name, **merged))


def a_runner(data: str, folder: Path | None = None, device: str = "cpu", **options: Any) -> TaskRunner:
    """A client's runner on a state folder; a new one beside the data if none is given."""
    states = ClientStates(folder or Path(tempfile.mkdtemp(dir=Path(data.partition(":")[2]).parent)))
    facts = {name: options.pop(name) for name in ("samples_per_class", "consent", "policy") if name in options}
    return TaskRunner(ClientSite.at("ann", "hospital", data, device=device, **facts), states, **options)


def first_model(data: str, run: RunSpec, consent: Consent = NO_CONSENT) -> tuple[Update, bytes]:
    aggregator = MemoryAggregator()
    a_runner(data, consent=consent).perform(Task(kind=TaskKind.INIT, run=run, total_rounds=3), aggregator)
    ((_, update),) = aggregator.updates
    return update, aggregator.stored[update.payload.tensor_group(MODEL).sha256][0]


def a_train_task(
    aggregator: MemoryAggregator,
    data: str,
    run: RunSpec,
    prototypes: PrototypeSet | None = None,
    round_number: int = 1,
    consent: Consent = NO_CONSENT,
) -> Task:
    _, model = first_model(data, run, consent)
    groups = (aggregator.offer(MODEL, model),)
    sets: tuple[Any, ...] = ()
    if "fedplcc" in run.config_json:
        sets = (aggregator.offer(GLOBAL_CLUSTER, prototypes_to_bytes(prototypes or PrototypeSet.empty())),)
    payload = Payload(tensor_groups=groups, prototype_sets=sets)
    return Task(kind=TaskKind.TRAIN, run=run, round=round_number, total_rounds=3, payload=payload)


def global_model(seed: int = 0) -> bytes:
    return to_bytes(state_arrays(a_model(a_config(run={"seed": seed}))))


def a_task(
    aggregator: MemoryAggregator,
    run: RunSpec,
    kind: TaskKind,
    number: int,
    *,
    prototypes: PrototypeSet | None = None,
    model: bytes | None = None,
) -> Task:
    """What an aggregator asks for: prototypes where the method trains with them, or judges by them."""
    config = config_of(run)
    sets: tuple[Any, ...] = ()
    if kind is TaskKind.TRAIN or config.algorithm.names_by_prototypes(config.method):
        sets = (aggregator.offer(GLOBAL_CLUSTER, prototypes_to_bytes(prototypes or PrototypeSet.empty())),)
    payload = Payload(tensor_groups=(aggregator.offer(MODEL, model or global_model()),), prototype_sets=sets)
    return Task(kind=kind, run=run, round=number, total_rounds=3, payload=payload)
