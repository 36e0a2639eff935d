"""Partition rules as people write them: how a data set is divided among simulated clients.

In a data specification a rule is the text `dirichlet(alpha=0.5,seed=0)` (`part_spec`). In a configuration file it is the
table `[partition]`, which `expand` turns into `[clients.NAME]` tables with such specifications. The processes of a demo, a
simulation and a trainer with the specification on its command line therefore get the same parts.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import Field, field_validator, model_validator

from fedplcc.shared.config.sections import Section, check_keys, unknown, validate
from fedplcc.shared.config.tables.stream import MAX_STAGES
from fedplcc.shared.errors import InvalidConfig

MAX_CLIENTS = 100_000
"""Most parts of one data set."""
MAX_NAME = 40
"""Longest name of a domain whose clients are numbered."""

_Fraction = Annotated[float, Field(gt=0, le=1)]
_Count = Annotated[int, Field(ge=1)]
_Each = TypeVar("_Each")
_RuleT = TypeVar("_RuleT", bound="Rule")


class Rule(Section):
    """Settings of a rule; `fedplcc.trainer.data.partition` applies it."""

    name: ClassVar[str]

    seed: int = Field(0, ge=0, lt=2**31)
    """Seed of every draw of the rule."""

    @property
    def text(self) -> str:
        """The rule with all its settings, as in a data specification."""
        return _call(self.name, self)


class Dividing(Rule):
    """Settings of a rule that divides a data set among clients."""

    stages: int = Field(1, ge=1, le=MAX_STAGES)
    """Stages that each client's part is dealt for; see [stream]."""


class Dirichlet(Dividing):
    """Dirichlet rule: each class is divided in proportions drawn from Dir(alpha)."""

    name: ClassVar[str] = "dirichlet"

    alpha: float = Field(0.5, gt=0, le=1e6)
    """Concentration; the smaller it is, the fewer classes a client has."""
    min_size: int = Field(10, ge=1)
    """Fewest training images of a client."""


class Sharding(Dividing):
    """Sharding rule: each client gets shards of single classes, for training and for testing."""

    name: ClassVar[str] = "sharding"

    shards: int = Field(2, ge=1, le=10_000)
    """Shards per client, and so its largest number of classes."""


class Domain(Dividing):
    """Domain rule: clients draw at random from the whole set, without replacement; equal parts if neither key is set."""

    name: ClassVar[str] = "domain"

    fraction: tuple[_Fraction, ...] | None = None
    """Share of the training images: one number for all clients, or a list with one per client."""
    count: tuple[_Count, ...] | None = None
    """Number of training images: one number for all clients, or a list with one per client."""

    @field_validator("fraction", "count", mode="before")
    @classmethod
    def _tuple(cls, value: Any) -> Any:
        if value == []:
            raise ValueError("give one number, or a list with one for each client")
        if value is None or isinstance(value, tuple):
            return value
        return tuple(value) if isinstance(value, list) else (value,)

    @model_validator(mode="after")
    def _one_size(self) -> Domain:
        if self.fraction is not None and self.count is not None:
            raise ValueError("set at most one of 'fraction' and 'count'")
        return self

    def sizes(self, num_samples: int, num_clients: int) -> list[int] | None:
        """Return the training images of each client, rounded down but at least one; None for equal parts of all images.

        Raises:
            InvalidConfig: A list has another length than the number of clients.
        """
        if self.fraction is not None:
            return [max(1, int(each * num_samples)) for each in _per_client(self.fraction, num_clients, "fraction")]
        if self.count is not None:
            return list(_per_client(self.count, num_clients, "count"))
        return None


class LongTail(Rule):
    """Long-tail rule: class sizes fall geometrically from the largest; test images are unchanged."""

    name: ClassVar[str] = "long_tail"

    imbalance: float = Field(gt=0, le=1)
    """Size of the last class divided by the largest."""


RULES: Mapping[str, type[Dividing]] = {rule.name: rule for rule in (Dirichlet, Sharding, Domain)}
"""Rules that divide a data set among clients. A long tail is none: it changes a set before it is divided."""


def _per_client(values: tuple[_Each, ...], num_clients: int, key: str) -> tuple[_Each, ...]:
    if len(values) == 1:
        return values * num_clients
    if len(values) != num_clients:
        raise InvalidConfig(f"{key} lists {len(values)} numbers for {num_clients} clients")
    return values


def part_spec(number: int, num_clients: int, rule: Rule, data: str) -> str:
    """Return the specification of one client's part: `part:3/10:dirichlet(alpha=0.5,min_size=10,seed=0):DATA`."""
    return f"part:{number}/{num_clients}:{rule.text}:{data}"


_CALL = re.compile(r"(?P<name>\w+)(?:\((?P<settings>[^()]*)\))?")


def parse_rule(text: str, rules: Mapping[str, type[_RuleT]]) -> _RuleT:
    """Parse `NAME(KEY=VALUE,...)`; NAME alone is enough if every setting has a default.

    Raises:
        InvalidConfig: The text has another form, or the name, a key or a value is wrong.
    """
    match = _CALL.fullmatch(text)
    if match is None:
        raise InvalidConfig(f"{text!r}: write NAME(KEY=VALUE,...), for instance dirichlet(alpha=0.5,seed=0)")
    name = match["name"]
    if name not in rules:
        raise InvalidConfig(unknown("rule", name, rules) + _about_long_tails(name))
    try:
        settings = tomllib.loads(f"settings = {{{match['settings'] or ''}}}")["settings"]
    except tomllib.TOMLDecodeError:
        raise InvalidConfig(f"{text!r}: write settings as KEY=VALUE with a comma between two, like seed=0") from None
    check_keys(settings, rules[name], f"{name}.")
    return validate(rules[name], settings, f"{name}.")


def _about_long_tails(name: str) -> str:
    if name != LongTail.name:
        return ""
    return "; a long tail goes before the data that is divided: part:0/10:dirichlet:long_tail(imbalance=0.1):DATA"


def _call(name: str, rule: Rule) -> str:
    # TOML's numbers and lists are JSON's.
    values = {key: value for key, value in rule.model_dump(mode="json").items() if value is not None}
    if values.get("stages") == 1:  # a part without stages says nothing of them
        del values["stages"]
    values["seed"] = values.pop("seed")  # last
    single = {key: value[0] if isinstance(value, list) and len(value) == 1 else value for key, value in values.items()}
    settings = ",".join(f"{key}={json.dumps(value, separators=(',', ':'))}" for key, value in single.items())
    return f"{name}({settings})"


class Pool(Section):
    """One data set that is divided, whichever rule does it."""

    data: str = Field(min_length=1)
    """Data specification of the whole set."""
    num_clients: int = Field(ge=1, le=MAX_CLIENTS)
    """Number of clients that share it."""
    imbalance: float | None = Field(None, gt=0, le=1)
    """If set, the training images get a long tail first; see `LongTail`."""
    seed: int = Field(0, ge=0, lt=2**31)
    """Seed of the division; the run's seed if not set."""
    samples_per_class: int | None = Field(None, ge=1)
    """Training images per class in a seeded, class-balanced subset of each part; all of them if not set."""
    validation_per_class: int | None = Field(None, ge=1)
    """Training images of a class that each part sets aside for validation; those of data.validation_every if not set."""


_DOMAIN_NAME = rf"^[A-Za-z0-9][A-Za-z0-9._-]{{0,{MAX_NAME - 1}}}$"
EVERYBODY, CLIENT = "all", "client"
"""Default domain label, and prefix of the clients' names, for one shared data set."""


def expand(table: Any, seed: int) -> dict[str, dict[str, Any]]:
    """Return the `[clients.NAME]` tables that `[partition]` abbreviates.

    With `data`, the clients are client-00, client-01, ... of one domain, named by `domain` or else "all". With
    `[partition.domains.NAME]` tables, which may have every key but `kind`, they are NAME-00, NAME-01, ... of domain NAME;
    keys of `[partition]` itself are defaults for all of them.

    Args:
        table: `[partition]` as read from TOML.

    Raises:
        InvalidConfig: A key or a value is wrong.
    """
    prefix = "partition."
    if not isinstance(table, Mapping):
        raise InvalidConfig("[partition] is a table of keys: kind, data, num_clients and those of the kind")
    common = {"seed": seed, **table}
    kind = common.pop("kind", None)
    if kind is None:
        raise InvalidConfig(f"partition.kind is missing; it is one of {', '.join(sorted(RULES))}")
    if not isinstance(kind, str) or kind not in RULES:
        hint = "; for a long tail set partition.imbalance beside any kind" if kind == LongTail.name else ""
        raise InvalidConfig(unknown("partition.kind", str(kind), RULES) + hint)
    domains = common.pop("domains", None)
    if domains is None:
        label = common.pop("domain", EVERYBODY)
        if not isinstance(label, str) or not re.fullmatch(_DOMAIN_NAME, label):
            raise InvalidConfig(f"partition.domain = {json.dumps(label, default=str)}: {_ABOUT_NAMES}")
        return _clients(common, RULES[kind], prefix, label, CLIENT)
    misplaced = next((key for key in ("data", "domain") if key in common), None)
    if misplaced is not None:
        raise InvalidConfig(f"set either partition.{misplaced} or [partition.domains.NAME] tables, not both")
    if not isinstance(domains, Mapping) or not domains:
        raise InvalidConfig("partition.domains holds one table per domain: [partition.domains.NAME]")
    clients: dict[str, dict[str, Any]] = {}
    for label, own in domains.items():
        place = f"{prefix}domains.{label}."
        if not re.fullmatch(_DOMAIN_NAME, label):
            raise InvalidConfig(f"{place.rstrip('.')}: {_ABOUT_NAMES}")
        if not isinstance(own, Mapping):
            raise InvalidConfig(f"{place.rstrip('.')} is a table of keys: data, num_clients and those of the kind")
        clients |= _clients({**common, **own}, RULES[kind], place, label, label)
    return clients


_ABOUT_NAMES = f"a domain's name is up to {MAX_NAME} letters, digits, '.', '_' or '-'"


def _clients(
    values: Mapping[str, Any], kind: type[Rule], prefix: str, label: str, name: str
) -> dict[str, dict[str, Any]]:
    """The tables of the clients that share one data set."""
    known = {*Pool.model_fields, *kind.model_fields}
    for key in values:
        if key not in known:
            raise InvalidConfig(_misplaced(str(key), kind, prefix) or unknown("key", str(key), known, prefix))
    pool = validate(Pool, {key: value for key, value in values.items() if key in Pool.model_fields}, prefix)
    rule = validate(kind, {key: value for key, value in values.items() if key in kind.model_fields}, prefix)
    if isinstance(rule, Domain):
        for key in ("fraction", "count"):
            if (values := getattr(rule, key)) is not None:
                _per_client(values, pool.num_clients, prefix + key)
    data = pool.data
    if pool.imbalance is not None:
        data = f"{LongTail(imbalance=pool.imbalance, seed=pool.seed).text}:{data}"
    width = max(2, len(str(pool.num_clients - 1)))
    numbers = {"samples_per_class": pool.samples_per_class, "validation_per_class": pool.validation_per_class}
    own = {key: value for key, value in numbers.items() if value is not None}
    return {
        f"{name}-{k:0{width}}": {"domain": label, "data": part_spec(k, pool.num_clients, rule, data), **own}
        for k in range(pool.num_clients)
    }


def _misplaced(key: str, kind: type[Rule], prefix: str) -> str | None:
    """Return the sentence for a key that belongs to another kind, or None."""
    owner = next((name for name, rule in RULES.items() if key in rule.model_fields), None)
    if owner is None:
        return None
    return f"{prefix}{key} belongs to kind = {json.dumps(owner)}, and the kind is {json.dumps(kind.name)}"
