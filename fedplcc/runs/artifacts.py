"""The files of a run, equal for a demo, a simulation and a deployed run fetched through the gateway.

    run.json                 configuration, seed, versions and machine types; of a run that ended before its last round, why
    metrics.jsonl            a line per committed round: computed values only, so equal federations give equal bytes
    timings.jsonl            a line per committed round: seconds, bytes and retries, outside every hash
    model.safetensors        the global model of the last committed round
    prototypes.safetensors   its global prototypes
    accuracy.png             accuracy of each domain over the rounds
    reliability.png          of a simulation with evaluation.histograms: accuracy by confidence

    model-best.safetensors, prototypes-best.safetensors
                             those of the best round by validation, where the run has validation images

A demo and a simulation leave roles/, see kept_roles.py. A simulation leaves evaluations.jsonl besides: a line per report of
a client, with its correct and total predictions by class, set and model. Of a deployed run the gateway lists the same
documents.

Every file is written beside its place and renamed, so that a crash leaves the old file or the new one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from fedplcc.aggregator.rounds.validation import Best, best_of_lines
from fedplcc.runs.atomic_file import atomic_file, make_folder, write_text
from fedplcc.runs.plots import accuracy_curves, domains_of
from fedplcc.runs.reliability import reliability_diagram, reported_bins
from fedplcc.shared.errors import InvalidConfig, PayloadCorrupt
from fedplcc.shared.process.disk import open_regular, read_regular
from fedplcc.shared.scoring.intervals import Interval
from fedplcc.shared.scoring.scores import BALANCED, known_domains, score_of
from fedplcc.shared.types import GLOBAL_MODEL, BlobRef

MANIFEST, METRICS, TIMINGS, PICTURE = "run.json", "metrics.jsonl", "timings.jsonl", "accuracy.png"
RELIABILITY = "reliability.png"
MODEL, PROTOTYPES = "model.safetensors", "prototypes.safetensors"
FILES = (MANIFEST, METRICS, TIMINGS, MODEL, PROTOTYPES, PICTURE)
"""Everything that a run leaves."""
BEST_MODEL, BEST_PROTOTYPES = "model-best.safetensors", "prototypes-best.safetensors"
"""What a run with validation images leaves besides."""
DETAILS = {"macro_f1": "macro F1", "auc": "area under the ROC curve", "calibration_error": "calibration error"}
"""Scores that a line of metrics.jsonl has where clients report more than right predictions, with their names."""
EVALUATIONS = "evaluations.jsonl"
"""What a simulation leaves besides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """A run's committed results.

    Attributes:
        reason: Why it failed, was stopped or ended early; empty if there is nothing to say.
        metrics_lines: Lines of metrics.jsonl without line ends, in order; none before round 1 has committed.
        model: The global model of the last committed round.
        evaluations_lines: Lines of evaluations.jsonl, likewise; none if they were not kept.
    """

    manifest: Mapping[str, Any]
    status: str
    reason: str
    metrics_lines: Sequence[str]
    timings_lines: Sequence[str]
    model: BlobRef
    prototypes: BlobRef
    evaluations_lines: Sequence[str] = ()

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl, read."""
        return [json.loads(line) for line in self.metrics_lines]

    @property
    def best(self) -> Best | None:
        """The round with the highest mean score on validation images, the first one; None without any."""
        return best_of_lines(self.metrics)


def claim_folder(folder: Path, run_id: str) -> None:
    """Make the folder for a run's files; a folder with another run's files is refused.

    Raises:
        InvalidConfig: It holds another run.
        StoreUnavailable: It cannot be written.
    """
    make_folder(folder)
    manifest = folder / MANIFEST
    if not manifest.exists():
        return
    try:
        holder = json.loads(read_regular(manifest))["run_id"]
    except (OSError, ValueError, KeyError, TypeError):
        raise InvalidConfig(f"{manifest} is there and is no run's; choose another folder with --out") from None
    if holder != run_id:
        raise InvalidConfig(f"{folder} holds the run {holder}; choose another folder with --out")


@contextmanager
def blob_file(path: Path, blob: BlobRef) -> Iterator[BinaryIO]:
    """Write a model or prototypes; the file takes its name only if the bytes have the blob's SHA-256.

    Raises:
        PayloadCorrupt: They have not.
        StoreUnavailable: The file cannot be written.
    """
    with atomic_file(path) as file:
        yield file
        file.flush()
        with open_regular(Path(file.name)) as written:
            digest = hashlib.file_digest(written, "sha256").hexdigest()
        if digest != blob.sha256:
            raise PayloadCorrupt(
                f"{path.name}: the bytes that came do not have the round's SHA-256", sha256=blob.sha256
            )


def write_record(folder: Path, record: RunRecord) -> None:
    """Write everything but the model and the prototypes. Without matplotlib there is no picture.

    Raises:
        StoreUnavailable: The folder cannot be written.
    """
    write_text(folder / METRICS, _lines(record.metrics_lines))
    write_text(folder / TIMINGS, _lines(record.timings_lines))
    if record.evaluations_lines:
        write_text(folder / EVALUATIONS, _lines(record.evaluations_lines))
    _draw(folder / PICTURE, record)
    # Last: a run.json marks a complete folder.
    write_text(folder / MANIFEST, json.dumps(record.manifest, sort_keys=True, indent=2, allow_nan=False) + "\n")


def read_record(folder: Path) -> RunRecord:
    """Read the results of a run that has ended.

    Raises:
        InvalidConfig: The folder does not hold all of it.
    """
    try:
        metrics, timings = (read_regular(folder / name).decode().splitlines() for name in (METRICS, TIMINGS))
        last = json.loads(metrics[-1])
        manifest = json.loads(read_regular(folder / MANIFEST))
        reports = folder / EVALUATIONS
        return RunRecord(
            manifest=manifest,
            status=manifest.get("status", "completed"),
            reason=manifest.get("reason", ""),
            metrics_lines=metrics,
            timings_lines=timings,
            model=BlobRef("model", last["model_sha256"], (folder / MODEL).stat().st_size),
            prototypes=BlobRef("prototypes", last["prototypes_sha256"], (folder / PROTOTYPES).stat().st_size),
            evaluations_lines=read_regular(reports).decode().splitlines() if reports.exists() else (),
        )
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise InvalidConfig(
            f"{folder} does not hold a whole run any more ({error}); choose another with --out"
        ) from error


def summary(record: RunRecord, folder: Path) -> dict[str, Any]:
    """The last line of `demo --json` and `simulate --json`: the last line of metrics.jsonl, and the folder."""
    nothing = {
        "round": 0,
        "accuracy": {"mean": None, "worst": None},
        "loss": {},
        "prototypes": {"local": 0, "global": 0},
        "model_sha256": record.model.sha256,
        "prototypes_sha256": record.prototypes.sha256,
    }
    last = record.metrics[-1] if record.metrics_lines else nothing
    return {
        "run_id": record.manifest["run_id"],
        "status": record.status,
        "rounds": record.manifest["total_rounds"],
        "directory": str(folder.resolve()),
        **last,
    }


def describe(record: RunRecord, folder: Path) -> list[str]:
    """Lines of text: the run's state, its accuracies and its files."""
    manifest, lines = record.manifest, record.metrics
    reason = f" ({record.reason})" if record.reason else ""
    texts = [f"run {manifest['run_id']}: {len(lines)} of {manifest['total_rounds']} rounds, {record.status}{reason}"]
    evaluated = [line for line in lines if line["accuracy"] is not None]
    if evaluated:
        when = "" if evaluated[-1] is lines[-1] else f" in round {evaluated[-1]['round']}"
        score = manifest.get("score") or {}
        known = score.get("values", {}) if score.get("round") == evaluated[-1]["round"] else {}
        texts += _accuracies(evaluated[-1], when, known) + _absences(evaluated)
    best = record.best
    if best is not None:
        words = best.score.replace("_", " ")
        texts.append(f"best round by validation: {best.round}, mean {words} {100 * best.accuracy:.1f}% there")
    if manifest.get("privacy"):
        texts.append(_claim(manifest["privacy"]))
    names = [
        name for name in (*FILES, RELIABILITY, BEST_MODEL, BEST_PROTOTYPES, EVALUATIONS) if (folder / name).exists()
    ]
    texts.append(f"results in {folder}: {', '.join(names)}")
    if PICTURE not in names:
        texts.append(f"{PICTURE} is not drawn: matplotlib is not installed (pip install matplotlib)")
    return texts


def _claim(privacy: Mapping[str, Any]) -> str:
    """The claim of a run with noise, and what a client's releases in it cost."""
    cost = "no epsilon that means anything" if privacy["epsilon"] is None else f"epsilon {privacy['epsilon']:.4g}"
    releases = f"{privacy['releases']} release{'s' if privacy['releases'] > 1 else ''}"
    return f"privacy: claim {privacy['claim']}, {cost}, delta {privacy['delta']:g} of a client in {releases}"


def _accuracies(line: Mapping[str, Any], when: str, known: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Accuracies of a round: a sentence for the global model, and one for the clients' own models; that of its score first.

    Args:
        when: Which round, where it is not the last one.
        known: The score's intervals, by "mean" and "worst".
    """
    kinds = {
        "accuracy": "accuracy",
        "accuracy_local": "accuracy of the clients' own models",
        "accuracy_alone": "accuracy of each client's images alone",
        "accuracy_pooled": "accuracy of one model of all images together",
    }
    if line.get("accuracy_of"):
        del kinds["accuracy"]
    if score_of(line) == BALANCED:
        whose = " of the clients' own models" if line.get("accuracy_of") else ""
        kinds = {BALANCED: f"balanced accuracy{whose}"} | kinds
    texts = []
    for key, name in kinds.items():
        of_score = known if key == score_of(line) else {}
        mean_range, worst_range = (_range(of_score.get(summary)) for summary in ("mean", "worst"))
        accuracy = line.get(key) or {"mean": None}
        if accuracy["mean"] is not None:
            worst = next(domain for domain in domains_of([line]) if accuracy[domain] == accuracy["worst"])
            texts.append(
                f"{name}{when}: mean {100 * accuracy['mean']:.1f}%{mean_range}, worst {100 * accuracy['worst']:.1f}%"
                f"{worst_range} ({worst})"
            )
    texts += joining_texts(line, when)
    for key, name in DETAILS.items():
        if (line.get(key) or {}).get("mean") is not None:
            texts.append(f"{name}{when}: mean {100 * line[key]['mean']:.1f}%, worst {100 * line[key]['worst']:.1f}%")
    if line.get("accuracy_of"):
        texts.append(f"{MODEL} is what the run began with, or has a part of that: clients share no whole models in it")
    return texts


def _absences(evaluated: Sequence[Mapping[str, Any]]) -> list[str]:
    """A sentence on domains that earlier rounds have a score of, and the last evaluated one has none of."""
    *known, last = (known_domains(line["accuracy"]) for line in evaluated)
    absent = sorted(set[str]().union(*known) - last)
    if not absent:
        return []
    return [
        f"no report of {', '.join(absent)} in round {evaluated[-1]['round']}: mean and worst are of the other domains"
    ]


def joining_texts(line: Mapping[str, Any], when: str = "") -> list[str]:
    """What joining is worth to each client by a round's line, as a sentence; nothing where nobody says."""
    gains = ", ".join(
        f"{client_id} {100 * gain:+.1f}" for client_id, gain in sorted((line.get("joining") or {}).items())
    )
    return [f"joining{when}: {gains} (points of a client's own model over its images alone)"] if gains else []


def _range(interval: Mapping[str, float] | None) -> str:
    return "" if interval is None else f" {Interval(interval['low'], interval['high'])}"


def ending_of(run_id: str, status: str, reason: str) -> str:
    """A sentence with a run's end and its reason."""
    words = {"completed": "has completed", "failed": "has failed", "stopped": "was stopped"}
    return f"run {run_id} {words.get(status, f'is {status}')}" + (f": {reason}" if reason else "")


def _draw(path: Path, record: RunRecord) -> None:
    manifest = record.manifest
    title = f"{manifest['name']}: {manifest['method']}, seed {manifest['seed']}"
    try:
        picture = accuracy_curves(record.metrics, title=title)
    except ImportError:
        path.unlink(missing_ok=True)
        return
    with atomic_file(path) as file:
        file.write(picture)
    own = next((line["accuracy_of"] for line in record.metrics if line.get("accuracy_of")), GLOBAL_MODEL)
    if bins := reported_bins(record.evaluations_lines, own):
        with atomic_file(path.with_name(RELIABILITY)) as file:
            file.write(reliability_diagram(bins, title=title))


def _lines(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
