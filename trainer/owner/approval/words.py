"""What a run asks for, as facts and in words: what its owner reads before a decision. Pure.

A document of a method of another package, which is not imported here, is told as far as it can be read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from fedplcc.shared.config.declared_arrays import declared_uploads
from fedplcc.shared.config.run import RunConfig, parse_run_config
from fedplcc.shared.errors import FedplccError
from fedplcc.shared.methods.heads.classsums import SCORES, SUMS
from fedplcc.shared.methods.heads.creff import GRADIENTS
from fedplcc.shared.methods.parts.public import PUBLIC
from fedplcc.shared.types import GLOBAL_MODEL
from fedplcc.trainer.owner.approval.asked import Asked
from fedplcc.trainer.owner.approval.packages import code_named

GROUPS: Mapping[str, str] = {
    SUMS: "sums of the features of its images by class",
    SCORES: "how many of its training images are found, by class",
    GRADIENTS: "gradients of the head for its images by class",
    PUBLIC: "what a model trained on its images says of each public image",
}
"""Words for groups that an update has beside its model."""
UNKNOWN_STARTER = "not known here: the aggregator does not say"


@dataclass(frozen=True, slots=True)
class Leaving:
    """One thing that leaves a site in each round.

    Attributes:
        bytes_a_round: Its size; None where that depends on images, or is not known yet.
    """

    what: str
    bytes_a_round: int | None = None


def facts_of(asked: Asked, *, why: str = "") -> dict[str, Any]:
    """Return the facts about a run that waits, for JSON."""
    document = asked.config
    config = _parsed(document)
    run, model = document["run"], document.get("model", {})
    leaving = list(_leaving(asked, config))
    told = {} if config is None else config.privacy.told(asked.rounds)
    known = [each.bytes_a_round for each in leaving if each.bytes_a_round is not None]
    return {
        "run_id": asked.run_id,
        "name": str(run.get("name", "")),
        "why": why,
        "asked_at": asked.asked_at,
        "method": str(run["method"]),
        "model": str(model.get("name", "")),
        "backbone": model.get("weights_sha256"),
        "begins_with": run.get("initial_model"),
        "code_named": code_named(document),
        "rounds": asked.rounds,
        "image_size": document.get("data", {}).get("image_size"),
        "classes": len(document.get("data", {}).get("classes", ())),
        "clients": run.get("clients"),
        "leaves_each_round": [{"what": each.what, "bytes": each.bytes_a_round} for each in leaving],
        "bytes_in_all": sum(known) * asked.rounds if known else None,
        "claim": str(document.get("privacy", {}).get("claim", "none")),
        "epsilon": told.get("epsilon"),
        "delta": told.get("delta"),
        "releases": told.get("releases"),
        "started_by": asked.started_by or None,
        "document_sha256": asked.document_sha256,
        "code": dict(asked.code),
        "code_sha256": asked.code_sha256,
        "torch": asked.torch,
    }


def lines_of(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the facts about a run as pairs of a heading and words."""
    backbone = facts["backbone"]
    model = facts["model"] + (f", backbone {backbone}" if backbone else ", no backbone of this site")
    if facts["begins_with"]:
        model += f"; begins with the model {facts['begins_with']}"
    code = ", ".join(f"{name} {value[:64]}" for name, value in facts["code"].items())
    code += f"; on torch {facts['torch']}" if facts["torch"] else ""
    clients = "those that join" if facts["clients"] is None else ", ".join(facts["clients"][:20])
    leaves = "; ".join(
        each["what"] + (f" ({each['bytes']:,} bytes)" if each["bytes"] is not None else "")
        for each in facts["leaves_each_round"]
    )
    total = facts["bytes_in_all"]
    in_all = f"{facts['rounds']:,} times that" + (f", the models {total:,} bytes" if total is not None else "")
    return [
        ("run", f"{facts['run_id']} ({facts['name']})"),
        ("waits", f"{facts['why']}; asked at {_time(facts['asked_at'])}"),
        ("method", facts["method"]),
        ("model", model),
        ("code", code),
        ("rounds", f"{facts['rounds']:,}, {facts['classes']:,} classes, images of {facts['image_size']} pixels"),
        ("others", clients),
        ("leaves each round", leaves),
        ("leaves in all", in_all),
        ("claim", _claim(facts)),
        ("started by", f"{facts['started_by']}, says the aggregator" if facts["started_by"] else UNKNOWN_STARTER),
        ("document", facts["document_sha256"]),
    ]


def sentence_of(decided: Mapping[str, Any]) -> str:
    """Return a decision in words: what, when, who and why."""
    by = f" by {decided['by']}" if decided["by"] else ", as a line says that does not hold"
    because = f": {decided['reason']}" if decided["reason"] else ""
    return f"{decided['ruling']} {_time(decided['time'])}{by}{because}"


def _time(seconds: float) -> str:
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S UTC}"
    except (ValueError, OverflowError, OSError):
        return "at an unknown time"


def _claim(facts: Mapping[str, Any]) -> str:
    if facts["releases"] is None:
        return f"{facts['claim']}: no noise, no guarantee"
    spent = "beyond all bounds" if facts["epsilon"] is None else f"{facts['epsilon']:.3g}"
    only = "" if facts["claim"] == "site" else "; of what has noise alone, nothing is promised of the rest"
    return f"{facts['claim']}: epsilon {spent} at delta {facts['delta']:g} for {facts['releases']} releases{only}"


def _parsed(document: Mapping[str, Any]) -> RunConfig | None:
    try:
        return parse_run_config(document)
    except FedplccError:
        return None


def _leaving(asked: Asked, config: RunConfig | None) -> Iterator[Leaving]:
    size = asked.model_bytes or None
    if config is None:
        yield Leaving("whatever the method of another package sends: read its code")
        yield Leaving("a model, if it shares one", size)
        return
    method = config.algorithm
    if method.shares_model(config.method):
        as_what, size = (f", as {config.wire.precision}", None) if config.wire.is_encoded else ("", size)
        yield Leaving(f"a model trained on its images{as_what}", size)
    noisy = config.release is not None
    for group, arrays in sorted(declared_uploads(config, 1).items()):
        what = GROUPS.get(group, f"{group}, made of its images")
        moment = ", and the second moment of all" if "moment" in arrays else ""
        yield Leaving(f"{what}{moment}" + (", with noise" if noisy else ""))
    if method.has_prototypes:
        yield Leaving("prototypes: mean features of its images by class" + (", with noise" if noisy else ""))
    if not config.withholds:
        yield Leaving("numbers of its training images by class, and training losses")
    detail = [
        name
        for name, wanted in (
            ("confusion matrices", config.evaluation.confusion),
            ("histograms of scores", config.evaluation.histograms),
            ("counts under attacks", bool(config.evaluation.attacks)),
            ("counts among the classes that it has", config.evaluation.own_classes),
            ("counts of models of its own", set(config.evaluated_models) != {GLOBAL_MODEL}),
        )
        if wanted
    ]
    images = "test images" if config.withholds else "test and validation images"
    yield Leaving(" and ".join([f"counts of correct predictions on its {images} by class", *detail]))
