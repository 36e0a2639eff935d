"""`part:K/N:RULE(...):DATA` and `long_tail(...):DATA`: parts of another data set for simulated clients.

A part is the data of one of N clients; K counts from 0. The rules are those of `fedplcc.trainer.data.partition`. Training
parts have no sample in common; nor have test parts. `dirichlet` and `domain` divide the test set into N even parts, so that
counts added over the clients are those of the whole test set; `sharding` divides it by the clients' labels.

With `stages=S` in the rule a part has S tasks, and `part:K.s/N:...` is task s alone, s from 1. `sharding` deals N x S tasks,
of which client K has K x S to K x S + S - 1; the others cut a client's part into S consecutive pieces.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedplcc.shared.config.tables.partition import (
    MAX_CLIENTS,
    RULES,
    Dirichlet,
    Dividing,
    Domain,
    LongTail,
    Sharding,
    parse_rule,
)
from fedplcc.shared.errors import InvalidArgument, InvalidConfig, InvalidData
from fedplcc.shared.types import IntArray
from fedplcc.trainer.data import partition
from fedplcc.trainer.data.source import Source

NOTHING: IntArray = np.zeros(0, np.int64)
PART = "part:K/N:RULE(KEY=VALUE,...):DATA"
EXAMPLE = "part:3/10:dirichlet(alpha=0.5,seed=0):cifar10:PATH"
_PART = re.compile(
    r"(?P<number>\d{1,9})(?:\.(?P<stage>\d{1,9}))?/(?P<of>\d{1,9}):(?P<rule>[^:]+):(?P<data>.+)", re.DOTALL
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One client's part of a data set.

    Attributes:
        number: The client, from 0.
        rule: Divides the data set.
        stage: The one task that is meant, from 1; None for all.
    """

    number: int
    of: int
    rule: Dividing
    data: str
    stage: int | None = None

    @property
    def spec(self) -> str:
        """The specification of this part."""
        task = "" if self.stage is None else f".{self.stage}"
        return f"part:{self.number}{task}/{self.of}:{self.rule.text}:{self.data}"


def split_part(text: str) -> Part:
    """Parse the text after `part:`.

    Raises:
        InvalidData: It is not of this form, or a number or a setting is out of range.
    """
    match = _PART.fullmatch(text)
    if match is None:
        raise InvalidData(f"data 'part:{text}': write {PART}, for instance {EXAMPLE}")
    number, of = int(match["number"]), int(match["of"])
    if not 1 <= of <= MAX_CLIENTS:
        raise InvalidData(f"data 'part:{text}': the number of parts is 1 to {MAX_CLIENTS}, not {of}")
    if number >= of:
        raise InvalidData(f"data 'part:{text}': there is no part {number}; {of} parts are numbered 0 to {of - 1}")
    rule, stage = _rule(match["rule"]), None if match["stage"] is None else int(match["stage"])
    if stage is not None and not 1 <= stage <= rule.stages:
        raise InvalidData(f"data 'part:{text}': there is no stage {stage}; the rule deals stages 1 to {rule.stages}")
    return Part(number=number, of=of, rule=rule, data=match["data"], stage=stage)


def _rule(text: str) -> Dividing:
    try:
        return parse_rule(text, RULES)
    except InvalidConfig as error:
        raise InvalidData(error.detail) from error


def part_of(source: Source, part: Part) -> Source:
    """Return one client's part of a data set, or one task of it.

    Raises:
        InvalidData: The rule cannot divide this data set among so many clients.
    """
    try:
        train, test = _divided(source, part.of, part.rule)
    except InvalidArgument as error:
        raise InvalidData(f"{part.rule.text}: {error.detail}") from error
    own = source.train.take(_of(train, part)), source.test.take(_of(test, part))
    return replace(source, train=own[0], test=own[1], is_dealt=part.of > 1)


def balanced_test(source: Source, part: Part) -> Source:
    """Return the data set with a client's part of its whole test set, whatever the labels of the client, and untrained."""
    test = partition.even_cut(len(source.test), part.of, seed=part.rule.seed)[part.number]
    return replace(source, train=source.train.take(NOTHING), test=source.test.take(test))


def _of(tasks: Sequence[Sequence[IntArray]], part: Part) -> IntArray:
    """Return the samples of a client's task, or of all its tasks."""
    own = tasks[part.number]
    return np.sort(np.concatenate(own)) if part.stage is None else own[part.stage - 1]


def _divided(
    source: Source, num_clients: int, rule: Dividing
) -> tuple[Sequence[Sequence[IntArray]], Sequence[Sequence[IntArray]]]:
    """Return the training and the test samples of every client, task by task."""
    labels_N, seed, stages = source.train.labels_N, rule.seed, rule.stages
    if isinstance(rule, Sharding):
        tasks = partition.sharding(labels_N, source.test.labels_N, num_clients * stages, shards=rule.shards, seed=seed)
        train, test = ([side[k * stages : (k + 1) * stages] for k in range(num_clients)] for side in tasks)
        return train, test
    test_parts = partition.even_cut(len(source.test), num_clients, seed=seed)
    if isinstance(rule, Dirichlet):
        parts = partition.dirichlet(labels_N, num_clients, alpha=rule.alpha, min_size=rule.min_size, seed=seed)
    else:
        assert isinstance(rule, Domain)
        sizes = rule.sizes(len(labels_N), num_clients)
        if sizes is None:
            sizes = [len(piece) for piece in np.array_split(labels_N, num_clients)]
        parts = partition.domain(len(labels_N), sizes, seed=seed)
    return [np.array_split(own, stages) for own in parts], [np.array_split(own, stages) for own in test_parts]


def long_tailed(source: Source, text: str) -> Source:
    """Return the data set with the training images of its classes thinned to a long tail; see `partition.long_tail`.

    Args:
        text: The rule with its settings: `long_tail(imbalance=0.1,seed=0)`.

    Raises:
        InvalidData: A setting is missing, unknown or out of range.
    """
    try:
        rule = parse_rule(text, {LongTail.name: LongTail})
    except InvalidConfig as error:
        raise InvalidData(f"{error.detail}; write long_tail(imbalance=0.1,seed=0):DATA") from error
    kept = partition.long_tail(source.train.labels_N, len(source.class_names), imbalance=rule.imbalance, seed=rule.seed)
    return replace(source, train=source.train.take(kept))
