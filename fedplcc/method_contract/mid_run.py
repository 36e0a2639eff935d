"""Methods at work in the middle of a run: three clients that each lack a class, what they report, and a mini-batch.

The run is in its second stage. A client has kept what it kept after the first one, in which it had other classes.

Shape legend: N samples of a client, D feature size, M classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedplcc.method_contract.client_losses import Situation, a_point
from fedplcc.method_contract.server_checks import stepped, uploaded
from fedplcc.method_contract.settings import Setting
from fedplcc.method_contract.uploads import DIM, NUM_CLASSES, a_client, in_order, merged, reported, reports_of
from fedplcc.shared.config.tables.stream import PASS, STAGE
from fedplcc.shared.methods.arrays import ArrayGroup, ClientState
from fedplcc.shared.methods.config import MethodConfig
from fedplcc.shared.methods.parts.kept_state import KeptState, StageBegin, StageMemory
from fedplcc.shared.methods.parts.part import ClientEnd, TaskView
from fedplcc.shared.methods.parts.personal import Personal
from fedplcc.shared.types import PrototypeSet

Model = dict[str, np.ndarray]
TASK = TaskView(round=2, num_examples=30, mean_examples=45.0)
"""What a client's numbers beside its task are made of."""
STAGES: tuple[Mapping[str, float], ...] = ({PASS: 1.0, STAGE: 1.0}, {PASS: 1.0, STAGE: 2.0})
"""Numbers that come with the tasks of a stage, the first one's and the second one's."""
PERSONAL: Mapping[Personal, tuple[str, ...]] = {"none": (), "head": ("head",), "batch_norm": ("steps",)}
"""Tensors of the model that a client keeps for itself."""


def a_model(seed: int) -> Model:
    """A model whose features are sizes of a matrix times its input, and whose logits are a matrix times those."""
    rng = np.random.default_rng(seed)
    weight, head = rng.normal(size=(DIM, DIM)), rng.normal(size=(DIM, NUM_CLASSES))
    return {"weight": weight.astype(np.float32), "head": head.astype(np.float32), "steps": np.array(seed, np.int64)}


def params_of(model: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The trained tensors of a model."""
    return {name: model[name].astype(np.float64) for name in ("weight", "head")}


def features_under(model: Mapping[str, Any], inputs: np.ndarray) -> np.ndarray:
    """Return the features `[N, D]` of inputs `[N, D]` under a model; none is zero."""
    return np.asarray(np.abs(inputs @ model["weight"]) + 0.05)


def kept(setting: Setting, state: ClientState | None = None, seed: int = 0) -> ClientState:
    """The next state of a client that had this one, received one model and trained it to another, in the first stage."""
    trained, names = a_model(seed + 1), tuple(params_of(a_model(seed)))
    end = ClientEnd(
        received=a_model(seed),
        trained=trained,
        state=state,
        round=1,
        parameters=names,
        personal=PERSONAL[setting.personal_part],
    )
    method, own = setting.method, setting.method.kept_after(end, setting.config)
    memory = stage_memory(setting)
    if memory is None:
        return own
    sent = reported(setting, *a_client(seed)).prototypes if method.has_prototypes else PrototypeSet.empty()
    return memory.with_report(own, state, sent, STAGES[0], setting.config)


def stage_memory(setting: Setting) -> StageMemory | None:
    """What the method's clients remember of stages."""
    kept_state = setting.method.part(KeptState)
    return None if kept_state is None else kept_state.of_stages


def in_second_stage(setting: Setting, state: ClientState, config: MethodConfig, seed: int = 0) -> ClientState:
    """The state with which a client trains that kept this one, and lacks another class than in the first stage."""
    memory = stage_memory(setting)
    if memory is None or not memory.begins(state, STAGES[1], config):
        return state
    features, labels = a_client(seed + 1)
    begin = StageBegin(features_ND=features, labels_N=labels, num_classes=NUM_CLASSES, state=state, scalars=STAGES[1])
    return memory.state(begin, config)


def sent_arrays(setting: Setting, config: MethodConfig) -> Mapping[str, ArrayGroup]:
    """Server arrays that come with the task of the second round, where the loss may want them."""
    setting = Setting(setting.method, config.model_dump())
    if not (setting.method.has("loss_arrays") and setting.method.sends(config)):
        return {}
    made = stepped(setting, 1, [uploaded(setting, client, {}) for client in range(3)], {}).arrays
    return {name: made[name] for name in setting.method.sends(config)}


def mid_run(
    setting: Setting, *, config: MethodConfig | None = None, is_first_time: bool = False, seed: int = 0
) -> tuple[dict[str, Any], Situation]:
    """A mini-batch with everything that a loss may look at: prototypes, a state from before, parameters that have moved."""
    method, config = setting.method, config or setting.config
    received, trained = a_model(seed), a_model(seed + 1)
    inputs = np.random.default_rng(seed).normal(size=(5, DIM))
    features = features_under(trained, inputs)
    state = kept(setting, seed=7) or None if method.keeps_client_state and not is_first_time else None
    state = None if state is None else in_second_stage(setting, state, config, seed=7)
    references = method.reference_models(received, state, config)
    prototypes = None
    if method.has_prototypes and not is_first_time:
        prototypes = merged(setting, in_order(reports_of(setting)))
    point = a_point(features, NUM_CLASSES, **params_of(trained))
    seen = {name: features_under(arrays, inputs) for name, arrays in references.items()}
    situation = Situation(
        labels_B=[0, 1, 2, 0, 1],
        num_classes=NUM_CLASSES,
        prototypes=prototypes,
        start=params_of(received),
        references=seen,
        reference_logits={name: seen[name] @ arrays["head"] for name, arrays in references.items()},
        kept=_widened(method.loss_arrays(state, {} if is_first_time else sent_arrays(setting, config), config)),
        scalars={**method.scalars(TASK, config), **STAGES[1]},
    )
    return point, situation


def _widened(arrays: ClientState) -> dict[str, np.ndarray]:
    return {name: array.astype(np.float64) if array.dtype == np.float32 else array for name, array in arrays.items()}
