"""Updates and joins of clients that tell nothing of single classes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fedplcc.aggregator.computation.prototype_checks import check_prototypes
from fedplcc.aggregator.computation.update_checks import check_counts
from fedplcc.shared.convert.membership import client_from_join
from fedplcc.shared.errors import MalformedUpdate
from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2
from fedplcc.shared.methods.prototypical import fedplcc
from fedplcc.shared.types import Client, Environment, Payload, PrototypeSet, Update

CLIENT = Client(client_id="ann", domain="d", num_examples=5, class_counts={}, environment=Environment())
UPDATE = Update(client_id="ann", payload=Payload(), num_examples=5, class_counts=(0, 0, 0))


@pytest.mark.parametrize("withholds", [True, False])
def test_a_client_may_say_nothing_of_its_classes_or_all(withholds: bool) -> None:
    check_counts(UPDATE, CLIENT, 3, withholds=withholds)
    with pytest.raises(MalformedUpdate, match="not counts that sum"):
        check_counts(replace(UPDATE, class_counts=(1, 0, 0)), CLIENT, 3)


def test_a_client_that_says_nothing_of_its_classes_sends_nothing_for_one() -> None:
    one = PrototypeSet.of([[1.0, 0.0]], [1], [5])
    with pytest.raises(MalformedUpdate, match="a class that the client has no samples of"):
        check_prototypes(one, UPDATE, method=fedplcc.METHOD, dim=2, class_counts=UPDATE.class_counts)


@pytest.mark.parametrize("told", [{"class_counts": (5, 0, 0)}, {"losses": {"ce": 1.0}}, {"num_excluded": 1}])
def test_what_a_run_withholds_is_refused_from_a_client_that_tells_it(told: dict[str, Any]) -> None:
    with pytest.raises(MalformedUpdate, match="which this run withholds"):
        check_counts(replace(UPDATE, **told), CLIENT, 3, withholds=True)


def test_a_client_may_join_without_telling_its_classes() -> None:
    request = round_service_pb2.JoinRequest(
        client_id="ann", domain="d", instance_token="t" * 20, num_examples=5, version="1"
    )
    client = client_from_join(request)
    assert (client.num_examples, client.class_counts) == (5, {})
