"""What a first model was trained to see: keys that decide which numbers a pixel becomes, as its run had them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from fedplcc.shared.config.run import RunConfig
from fedplcc.shared.config.tables.model import TIMM, UNSET_IN_0_2, TimmOptions

UNNAMED_CLASSES = (
    "nobody names the classes of the model that the run begins with: its outputs are taken in the order of data.classes; "
    "keep run.json beside the file, or write the model's classes in run.initial_classes"
)


class Difference(NamedTuple):
    """A key that a run has otherwise than the run that trained its first model."""

    key: str
    was: Any
    now: Any

    def sentence(self, run_id: str) -> str:
        """Return what differs."""
        return f"{self.key} is {_said(self.now)}, and was {_said(self.was)} in run {run_id}, which trained the model"


def other_input(run_id: str, theirs: Mapping[str, Any], config: RunConfig) -> tuple[str, str] | None:
    """Return the key by which a run would show its first model other numbers than it has learnt from, and why; else None.

    Args:
        config: That of the run that begins with the model.
    """
    found = next(_differences(theirs, config), None)
    if found is None:
        return None
    is_model = found.key.startswith("model.")
    advice = "use the same [model]" if is_model else f"write {_said(found.was)}, the numbers that it has learnt from"
    return found.key, f"{found.sentence(run_id)}; {advice}"


def role_fault(run_id: str, theirs: Mapping[str, Any], config: RunConfig) -> tuple[str, str] | None:
    """Return the key by which a run would test on images that an earlier one trained on, and why; else None."""
    images = "images that it trained on would"
    for found in _data(theirs, config, ("test_every", "validation_every")):
        if found.key == "data.test_every":
            return found.key, f"{found.sentence(run_id)}: {images} be tested on; write {found.was}"
        if found.now is not None:
            advice = "leave it out" if found.was is None else f"write {found.was}, or leave it out"
            return found.key, f"{found.sentence(run_id)}: {images} choose the best round; {advice}"
    return None


def other_size(run_id: str, theirs: Mapping[str, Any], config: RunConfig) -> str:
    """Return a sentence on pictures that a first model has seen in another way, which may be meant; else nothing."""
    said = [
        found.sentence(run_id)
        for found in _data(theirs, config, ("image_size", "window"))
        if found.key == "data.image_size" or found.was is None
    ]
    return f"{'; '.join(said)}: it has seen pictures in another way" if said else ""


def names_classes(run: Mapping[str, Any]) -> bool:
    """Whether somebody knows the order of a first model's outputs, by the run's `[run]` as it was created."""
    known = run.get("initial_runs") or run.get("initial_classes")
    return run.get("initial_model") is None or bool(known)


def _differences(theirs: Mapping[str, Any], config: RunConfig) -> Iterator[Difference]:
    model, own = theirs.get("model", {}), config.model
    for key in ("name", "stem", "norm"):
        was = model.get(key, "batch" if key == "norm" else getattr(own, key))
        if was != getattr(own, key):
            yield Difference(f"model.{key}", was, getattr(own, key))
    options = {key: value for key, value in model.get("options", {}).items() if (key, value) not in UNSET_IN_0_2}
    defaults = TimmOptions.model_validate({}).model_dump() if TIMM.fullmatch(own.name) else {}
    for key in sorted({**options, **own.options}) if "options" in model else ():
        was, now = options.get(key, defaults.get(key)), own.options.get(key)
        if was != now:
            yield Difference(f"model.options.{key}", was, now)
    is_part = "all" not in (theirs.get("training", {}).get("train", "all"), config.training.train)
    if is_part and (was := model.get("weights_sha256")) != own.weights_sha256:
        yield Difference("model.weights_sha256", was, own.weights_sha256)
    yield from (found for found in _data(theirs, config, ("mean", "std", "window")) if found.was is not None)


def _data(theirs: Mapping[str, Any], config: RunConfig, keys: tuple[str, ...]) -> Iterator[Difference]:
    """Yield which keys of `[data]` differ."""
    was, now = theirs.get("data", {}), config.data.model_dump(mode="json")
    for key in keys:
        if key in was and was[key] != now[key]:
            yield Difference(f"data.{key}", was[key], now[key])


def _said(value: Any) -> str:
    return "not set" if value is None else repr(value).replace("'", '"')
