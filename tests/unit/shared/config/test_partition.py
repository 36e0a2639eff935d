"""`[partition]`: what it stands for, and what is said of slips in it."""

import re
import tomllib
from typing import Any

import pytest

from fedplcc.shared.config.run import parse_federation
from fedplcc.shared.config.tables.partition import RULES, Dirichlet, Domain, parse_rule
from fedplcc.shared.errors import InvalidConfig
from tests.support import ROOT

BASE: dict[str, Any] = {"run": {"method": "fedavg", "seed": 7}, "data": {"classes": ["a", "b"]}}


def clients(**partition: Any) -> dict[str, dict[str, Any]]:
    found = parse_federation({**BASE, "partition": partition})
    assert list(found.config.run.clients or ()) == sorted(found.clients)
    return {
        name: client.model_dump(exclude_none=True, exclude={"evaluate_only"}) for name, client in found.clients.items()
    }


def problem(**partition: Any) -> str:
    with pytest.raises(InvalidConfig) as raised:
        parse_federation({**BASE, "partition": partition})
    assert "\n" not in raised.value.detail
    return raised.value.detail


def test_one_set_is_divided_among_numbered_clients_of_one_domain() -> None:
    assert clients(kind="dirichlet", data="cifar10:/data", num_clients=2, alpha=0.1) == {
        f"client-0{k}": {"domain": "all", "data": f"part:{k}/2:dirichlet(alpha=0.1,min_size=10,seed=7):cifar10:/data"}
        for k in range(2)
    }


def test_numbers_are_as_wide_as_the_last_one() -> None:
    names = list(clients(kind="sharding", data="mnist:/data", num_clients=101))
    assert (names[0], names[-1]) == ("client-000", "client-100")


def test_domains_have_clients_of_their_own_and_share_the_keys_above_them() -> None:
    domains = {
        "mnist": {"data": "digit5:mnist:/data", "num_clients": 2},
        "usps": {"data": "digit5:usps:/data", "num_clients": 1, "fraction": 1, "samples_per_class": 3},
    }
    assert clients(kind="domain", fraction=0.01, seed=3, samples_per_class=5, domains=domains) == {
        "mnist-00": {
            "domain": "mnist",
            "data": "part:0/2:domain(fraction=0.01,seed=3):digit5:mnist:/data",
            "samples_per_class": 5,
        },
        "mnist-01": {
            "domain": "mnist",
            "data": "part:1/2:domain(fraction=0.01,seed=3):digit5:mnist:/data",
            "samples_per_class": 5,
        },
        "usps-00": {
            "domain": "usps",
            "data": "part:0/1:domain(fraction=1.0,seed=3):digit5:usps:/data",
            "samples_per_class": 3,
        },
    }


def test_a_long_tail_comes_before_the_division() -> None:
    made = clients(kind="sharding", data="cifar10:/data", num_clients=1, shards=3, imbalance=0.1, domain="cifar")
    assert made["client-00"] == {
        "domain": "cifar",
        "data": "part:0/1:sharding(shards=3,seed=7):long_tail(imbalance=0.1,seed=7):cifar10:/data",
    }


@pytest.mark.parametrize(
    "text", ["dirichlet(alpha=0.25,min_size=1,seed=9)", "domain(count=[3,4],seed=0)", "domain(seed=2)"]
)
def test_a_rule_that_is_written_reads_as_it_was(text: str) -> None:
    assert parse_rule(text, RULES).text == text


def test_settings_may_be_left_out_and_have_spaces() -> None:
    assert parse_rule("dirichlet", RULES) == parse_rule("dirichlet()", RULES) == Dirichlet()
    assert parse_rule("domain( fraction = 0.5, seed = 1 )", RULES) == Domain(fraction=(0.5,), seed=1)


GOOD = {"kind": "domain", "data": "mnist:/data", "num_clients": 2}
SLIPS: dict[str, tuple[dict[str, Any], str]] = {
    "no kind": ({"kind": None}, "partition.kind is missing; it is one of dirichlet, domain, sharding"),
    "a misspelt kind": ({"kind": "dirichelt"}, "unknown partition.kind 'dirichelt'; did you mean 'dirichlet'?"),
    "a number for a kind": ({"kind": 3}, "unknown partition.kind '3'; known: dirichlet, domain, sharding"),
    "a long tail as the kind": ({"kind": "long_tail"}, "for a long tail set partition.imbalance beside any kind"),
    "no data": ({"data": None}, "partition.data is missing"),
    "no number": ({"num_clients": None}, "partition.num_clients is missing"),
    "no client": ({"num_clients": 0}, "partition.num_clients = 0: it must be at least 1"),
    "a misspelt key": ({"num_client": 2}, "unknown key 'partition.num_client'; did you mean 'partition.num_clients'?"),
    "another kind's key": ({"alpha": 1}, 'partition.alpha belongs to kind = "dirichlet", and the kind is "domain"'),
    "a number as text": ({"fraction": "0.5"}, 'partition.fraction.0 = "0.5": write a number'),
    "too large a fraction": ({"fraction": 1.5}, "partition.fraction.0 = 1.5: it must be at most 1"),
    "a list of another length": ({"count": [1, 2, 3]}, "partition.count lists 3 numbers for 2 clients"),
    "two sizes": ({"count": 1, "fraction": 0.1}, "partition: set at most one of 'fraction' and 'count'"),
    "a bad tail": ({"imbalance": 0}, "partition.imbalance = 0: it must be more than 0"),
    "a bad label": ({"domain": "a b"}, 'partition.domain = "a b": a domain\'s name is up to 40 letters'),
    "two ways": ({"domains": {"x": GOOD}}, "set either partition.data or [partition.domains.NAME] tables, not both"),
    "no domains": ({"data": None, "domains": {}}, "partition.domains holds one table per domain"),
    "a text for a domain": ({"data": None, "domains": {"x": "mnist"}}, "partition.domains.x is a table of keys"),
    "a bad domain name": (
        {"data": None, "domains": {"../x": {}}},
        "partition.domains.../x: a domain's name is up to 40",
    ),
    "a domain's misspelt key": (
        {"data": None, "domains": {"x": {"data": "mnist:/data", "fractoin": 1}}},
        "unknown key 'partition.domains.x.fractoin'; did you mean 'partition.domains.x.fraction'?",
    ),
    "a domain without data": ({"data": None, "domains": {"x": {}}}, "partition.domains.x.data is missing"),
}


@pytest.mark.parametrize("what", SLIPS)
def test_a_slip_is_named_with_what_to_write(what: str) -> None:
    changes, sentence = SLIPS[what]
    values = {key: value for key, value in {**GOOD, **changes}.items() if value is not None}
    assert sentence in problem(**values)


def test_what_is_no_table_is_told_so() -> None:
    with pytest.raises(InvalidConfig, match=r"\[partition\] is a table of keys: kind, data, num_clients"):
        parse_federation({**BASE, "partition": "dirichlet"})


def test_a_partition_and_tables_of_clients_exclude_each_other() -> None:
    with pytest.raises(InvalidConfig, match=r"\[partition\] stands for \[clients.NAME\] tables: keep one of the two"):
        parse_federation({**BASE, "partition": GOOD, "clients": {"ann": {"data": "mnist:/data"}}})


def test_what_is_wrong_with_the_run_is_told_as_ever() -> None:
    with pytest.raises(InvalidConfig, match=r'run.seed = "x": write a whole number'):
        parse_federation({**BASE, "run": {"method": "fedavg", "seed": "x"}, "partition": GOOD})


def test_the_examples_of_the_readme_are_whole() -> None:
    text = (ROOT / "trainer" / "data" / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    made = [sorted(clients(**tomllib.loads(block)["partition"])) for block in blocks]
    assert [len(names) for names in made] == [10, 10]
    assert (made[0][-1], made[1][0], made[1][-1]) == ("client-09", "mnist-00", "usps-06")
