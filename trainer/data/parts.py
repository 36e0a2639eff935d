"""`part:K/N:RULE(...):DATA` and `long_tail(...):DATA`: parts of another data set for simulated clients.

A part is the data of one of N clients; K counts from 0. The rules are those of `trainer.data.partition`. Training parts
have no sample in common; nor have test parts. `dirichlet` and `domain` divide the test set into N even parts, so that
counts added over the clients are those of the whole test set; `sharding` divides it by the clients' labels.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from shared.config.partition import MAX_CLIENTS, RULES, Dirichlet, Domain, LongTail, Rule, Sharding, parse_rule
from shared.errors import InvalidArgument, InvalidConfig, InvalidData
from shared.types import IntArray
from trainer.data import partition
from trainer.data.source import Source

PART = "part:K/N:RULE(KEY=VALUE,...):DATA"
EXAMPLE = "part:3/10:dirichlet(alpha=0.5,seed=0):cifar10:PATH"
_PART = re.compile(r"(?P<number>\d{1,9})/(?P<of>\d{1,9}):(?P<rule>[^:]+):(?P<data>.+)", re.DOTALL)


def split_part(text: str) -> tuple[int, int, Rule, str]:
    """Parse the text after `part:`; returns the client's number, the number of clients, the rule, and the data to divide.

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
    return number, of, _rule(match["rule"]), match["data"]


def _rule(text: str) -> Rule:
    try:
        return parse_rule(text, RULES)
    except InvalidConfig as error:
        raise InvalidData(error.detail) from error


def part_of(source: Source, number: int, num_clients: int, rule: Rule) -> Source:
    """Return one client's part of a data set.

    Raises:
        InvalidData: The rule cannot divide this data set among so many clients.
    """
    try:
        train, test = _divided(source, num_clients, rule)
    except InvalidArgument as error:
        raise InvalidData(f"{rule.text}: {error.detail}") from error
    return replace(source, train=source.train.take(train[number]), test=source.test.take(test[number]))


def _divided(source: Source, num_clients: int, rule: Rule) -> tuple[list[IntArray], list[IntArray]]:
    """Return the training and the test samples of every client."""
    labels_N, seed = source.train.labels_N, rule.seed
    if isinstance(rule, Sharding):
        return partition.sharding(labels_N, source.test.labels_N, num_clients, shards=rule.shards, seed=seed)
    test = partition.even_cut(len(source.test), num_clients, seed=seed)
    if isinstance(rule, Dirichlet):
        train = partition.dirichlet(labels_N, num_clients, alpha=rule.alpha, min_size=rule.min_size, seed=seed)
        return train, test
    assert isinstance(rule, Domain)
    sizes = rule.sizes(len(labels_N), num_clients)
    if sizes is None:
        sizes = [len(part) for part in np.array_split(labels_N, num_clients)]
    return partition.domain(len(labels_N), sizes, seed=seed), test


def long_tailed(source: Source, text: str) -> Source:
    """Return the data set with the training images of its classes thinned to a long tail; see `partition.long_tail`.

    Args:
        source: Data set.
        text: The rule with its settings: `long_tail(imbalance=0.1,seed=0)`.

    Raises:
        InvalidData: A setting is missing, unknown or out of range.
    """
    try:
        rule = parse_rule(text, {LongTail.name: LongTail})
    except InvalidConfig as error:
        raise InvalidData(f"{error.detail}; write long_tail(imbalance=0.1,seed=0):DATA") from error
    assert isinstance(rule, LongTail)
    kept = partition.long_tail(source.train.labels_N, len(source.class_names), imbalance=rule.imbalance, seed=rule.seed)
    return replace(source, train=source.train.take(kept))
