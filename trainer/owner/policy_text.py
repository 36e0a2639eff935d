"""A site's policy as text: a file that explains every key, and sentences on what a policy allows. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedplcc.shared.config.key_descriptions import key_descriptions
from fedplcc.shared.config.sections import section_of
from fedplcc.shared.config.toml_text import WIDTH, toml_assignment
from fedplcc.shared.types import LogLevel
from fedplcc.trainer.owner.policy import Policy, RunLimits

HEAD = """\
The policy of this site's owner, which `fedplcc trainer --policy FILE` reads when it starts. A line without # is in force.
What is not given forbids nothing, and allows nothing: runs.allow_code and leaves.logs allow what they name, every other key
can only forbid more than the trainer's other settings do. Try a run with `fedplcc config check FILE --run RUN.toml`.
"""
TABLES: Mapping[str, str] = {
    "runs": "The runs that the site takes part in.",
    "thresholds": "Least numbers of images. They lower what attacks find; there is no guarantee in them.",
    "privacy": "What a run must claim, and what its releases may cost; docs/privacy.md says what a claim covers.",
    "leaves": "What may leave the site.",
}
EXAMPLES: Mapping[str, Any] = {
    "runs.methods": ["classsums", "fedavg"],
    "runs.models": ["timm:efficientnet_lite0"],
    "runs.backbones": ["0" * 64],
    "runs.most_rounds": 100,
    "runs.most_image_size": 256,
    "runs.most_local_steps": 500,
    "runs.most_local_epochs": 5,
    "runs.allow_code": ["package.module:factory"],
    "thresholds.class_images": 10,
    "thresholds.test_images": 50,
    "thresholds.prototype_images": 10,
    "privacy.claim": "site",
    "privacy.epsilon": 3.0,
    "privacy.delta": 1e-5,
    **{f"leaves.{name}": False for name in ("models", "class_counts", "losses", "scores", "readings")},
    "leaves.logs": "warning",
}
"""A value of each key, which the written file has behind a #."""
APPROVALS: Mapping[str, str] = {
    "each": "Each run waits here until its owner approves it (fedplcc site pending).",
    "matching": "A run waits here until its owner approves it, unless it asks for no more than one that the owner approved.",
    "always": "No run waits for its owner's approval.",
}
NOUNS: Mapping[str, str] = {
    "models": "weights that were trained on its images",
    "class_counts": "numbers of training images of single classes",
    "losses": "losses",
    "scores": "scores on test and validation images",
    "readings": "readings of its machine and times of passes over images",
}

LOGS: Mapping[LogLevel, str] = {
    LogLevel.NONE: "No line of the trainer's log leaves.",
    LogLevel.ERROR: "Errors in the trainer's log may leave, without sentences and numbers.",
    LogLevel.WARNING: "Warnings and errors in the trainer's log may leave, without sentences and numbers.",
    LogLevel.INFO: "Lines of the trainer's log may leave, without sentences and numbers.",
}


def policy_template() -> str:
    """Return a policy's file in which every key is explained, and none but `approve` is in force."""
    lines = [*_comment(HEAD), ""]
    descriptions = key_descriptions(Policy)
    for name, field in Policy.model_fields.items():
        kind = section_of(field.annotation)
        if kind is None:
            lines += [*_comment(descriptions[name]), *toml_assignment(name, field.default).splitlines()]
            continue
        lines += ["", *_comment(TABLES[name]), f"[{name}]"]
        for key, meaning in key_descriptions(kind).items():
            example = toml_assignment(key, EXAMPLES[f"{name}.{key}"])
            lines += [*_comment(meaning), *(f"# {line}" for line in example.splitlines())]
    return "\n".join(lines) + "\n"


def policy_sentences(policy: Policy) -> list[str]:
    """Return what a policy allows, one sentence each."""
    return [
        *_of_runs(policy.runs),
        APPROVALS[policy.approve],
        *_of_thresholds(policy),
        *_of_privacy(policy),
        *_of_what_leaves(policy),
    ]


def _of_runs(runs: RunLimits) -> Iterator[str]:
    for what, names in (("methods", runs.methods), ("models", runs.models), ("backbones", runs.backbones)):
        if names is not None:
            yield f"Runs may have these {what}: {', '.join(names) or 'none'}."
    limits = {
        "rounds": runs.most_rounds,
        "pixels of an image's side": runs.most_image_size,
        "mini-batches a round": runs.most_local_steps,
        "passes over the images a round": runs.most_local_epochs,
    }
    told = [f"{most} {what}" for what, most in limits.items() if most is not None]
    if told:
        yield f"Runs may have at most {_listed(told)}."
    if not told and runs.methods is None and runs.models is None:
        yield "Runs of every method, model and length may take part."
    if runs.allow_code:
        yield f"Runs may name the code {', '.join(runs.allow_code)}, besides that of --allow-code."


def _of_thresholds(policy: Policy) -> Iterator[str]:
    least = policy.thresholds
    if least.class_images > 1:
        yield (
            f"Classes with fewer than {least.class_images} training images are not used, and scores leave out classes with "
            f"fewer than {least.class_images} images; runs that add noise to class sums are refused."
        )
    if least.test_images > 1:
        yield f"No score of fewer than {least.test_images} images leaves."
    if least.prototype_images > 1:
        yield f"No prototype of fewer than {least.prototype_images} training images leaves."
    if (least.class_images, least.test_images, least.prototype_images) != (1, 1, 1):
        yield "Thresholds lower what attacks find; there is no guarantee in them."


def _of_privacy(policy: Policy) -> Iterator[str]:
    limits = policy.privacy
    if limits.claim != "none":
        at = "" if limits.epsilon is not None else ", with any epsilon: privacy.epsilon is not given"
        yield f"Runs must claim {limits.claim} or more (privacy.claim){at}."
    if limits.epsilon is not None:
        yield f"All releases together may come to epsilon {limits.epsilon:g} with delta {limits.delta:g}."


def _of_what_leaves(policy: Policy) -> Iterator[str]:
    kept = [NOUNS[name] for name in NOUNS if not getattr(policy.leaves, name)]
    told = [NOUNS[name] for name in NOUNS if getattr(policy.leaves, name)]
    if kept:
        yield f"What stays at the site: {'; '.join(kept)}."
    if told:
        yield f"What may leave it: {'; '.join(told)}."
    keeps_to_itself = policy.privacy.claim == "site" or policy.privacy.epsilon is not None
    if keeps_to_itself:
        yield "Still, class counts when it joins, readings that images have a part in and details of problems stay."
    yield LOGS[LogLevel.NONE if keeps_to_itself else policy.leaves.logs]
    if policy.leaves.scores and not policy.leaves.class_counts:
        yield "Scores tell how many test images of each class there are."


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _comment(text: str) -> list[str]:
    return textwrap.wrap(" ".join(text.split()), WIDTH, initial_indent="# ", subsequent_indent="# ")
