"""Network policies of the Helm chart and of the trainer's manifest allow the architecture's arrows, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from tests.support import ROOT
from tests.support.hosts.helm import RELEASE, Document, rendered
from tests.support.hosts.kubernetes import (
    EVERYTHING,
    WORKLOADS,
    charts,
    component,
    made,
    manifest,
    of_kind,
)

ANYWHERE = [{"ipBlock": {"cidr": "0.0.0.0/0"}}, {"ipBlock": {"cidr": "::/0"}}]


class Arrow(NamedTuple):
    """A connection that is allowed."""

    caller: str
    callee: str
    port: int


def drawn() -> set[Arrow]:
    """The arrows of docs/architecture.md."""
    table = (ROOT / "docs" / "architecture.md").read_text().split("<!-- arrows -->")[1].split("<!-- /arrows -->")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.strip().splitlines()[2:]]
    return {Arrow(caller, callee, int(port)) for caller, callee, ports, _what in rows for port in ports.split(",")}


def who(selected: Mapping[str, Any]) -> str:
    """Whom a peer of a policy names."""
    (kind,) = selected
    if kind == "ipBlock":
        assert selected in ANYWHERE
        return "aggregator"
    labels = selected[kind]["matchLabels"]
    return str(labels.get("who") or labels.get("app.kubernetes.io/component") or "DNS")


def allowed(found: list[Document]) -> tuple[set[Arrow], set[Arrow]]:
    """What callees let in, and what callers let out; a pod without a policy of both kinds lets anything in and out."""
    into, out = set[Arrow](), set[Arrow]()
    policies = {
        each["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/component"]: each["spec"]
        for each in of_kind(found, "NetworkPolicy")
    }
    assert policies.keys() == {component(each) for each in of_kind(found, *WORKLOADS)}
    assert len(policies) == len(of_kind(found, "NetworkPolicy"))
    for name, spec in policies.items():
        assert spec["policyTypes"] == ["Ingress", "Egress"]
        for direction, side, arrows in (("ingress", "from", into), ("egress", "to", out)):
            for rule in spec.get(direction) or ():
                assert rule[side], "a rule without peers lets everybody"
                assert rule["ports"], "a rule without ports lets every port"
                for other, port in (
                    (who(each), each_port["port"]) for each in rule[side] for each_port in rule["ports"]
                ):
                    arrows.add(Arrow(other, name, port) if side == "from" else Arrow(name, other, port))
    return into, out


def test_policies_allow_exactly_the_arrows_of_the_architecture() -> None:
    _plain, everything = charts()
    into, out = allowed(everything)
    trainer_into, trainer_out = allowed(manifest())
    assert trainer_into == set(), "nothing dials a trainer"
    assert into | out | trainer_out == drawn()
    ours = {"aggregator", "gateway"}
    inside = {arrow for arrow in out if arrow.callee in ours}
    assert inside == {arrow for arrow in into if arrow.caller in ours}, "both ends allow what passes between them"


def test_without_values_people_prometheus_and_a_database_dial_and_are_dialled_by_nobody() -> None:
    plain, _everything = charts()
    policies = {each["metadata"]["name"]: each["spec"] for each in of_kind(plain, "NetworkPolicy")}
    assert "ingress" not in policies[f"{RELEASE}-gateway"]
    assert "egress" not in policies[f"{RELEASE}-aggregator"]
    (rule,) = policies[f"{RELEASE}-aggregator"]["ingress"]
    assert [peer for peer in rule["from"] if "ipBlock" in peer] == ANYWHERE
    nobody = {name: list[Document]() for name in EVERYTHING["networkPolicy"]}
    (closed,) = rendered({**EVERYTHING, "networkPolicy": nobody})
    into, out = allowed(made(closed))
    assert into == out == {Arrow("gateway", "aggregator", port) for port in (50051, 50053)}
