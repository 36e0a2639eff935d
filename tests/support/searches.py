"""Searches for the next fault of a kind: how far one goes here, and the planted member that each finds."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TypeVar

VARIABLE = "WHOLE_SEARCHES"
"""Environment variable that `python -m tests.chaos.searches` sets."""
SEARCHES: Mapping[str, str] = {
    "tests/chaos/test_complexity.py": "test_time_that_grows_with_the_square_would_be_found",
    "tests/chaos/test_patterns.py": "test_a_pattern_whose_time_grows_faster_is_found",
    "tests/chaos/test_written_bytes.py": "test_a_call_that_writes_down_its_request_is_found",
    "tests/contract/test_limits_have_shares.py": "test_a_planted_limit_is_found",
    "tests/contract/test_ports_are_held.py": "test_a_planted_port_is_found",
    "tests/contract/test_request_headers.py": "test_the_search_finds_a_header_that_is_new",
    "tests/integration/test_hostile_connections.py": "test_an_aggregator_that_ends_no_connection_is_found",
    "tests/integration/test_names_of_roles.py": "test_the_search_finds_a_certificate_without_the_name_of_its_role",
    "tests/unit/aggregator/coordinator/test_flipped_blobs.py": "test_a_fold_that_takes_what_it_reads_is_found",
    "tests/unit/aggregator/servicer/test_fields_that_decide.py": "test_a_planted_field_is_found",
    "tests/unit/aggregator/servicer/test_one_liar.py": "test_a_planted_field_that_decides_is_found",
    "tests/unit/gateway/test_middleware_refusals.py": "test_a_refusal_that_counts_nothing_is_found",
    "tests/unit/shared/wire/test_cost_before_admission.py": "test_the_search_finds_a_server_that_decodes_first",
    "tests/unit/shared/wire/test_memory_of_refused_calls.py": "test_a_server_that_keeps_what_it_is_sent_is_found",
    "tests/unit/shared/wire/test_threads.py": "test_threads_without_shares_are_found",
}
"""The file of each search, and its test of a planted member: a fault of the kind, which the search finds."""

Amount = TypeVar("Amount")


def amount(sample: Amount, whole: Amount) -> Amount:
    """Return how much of a search runs here."""
    return whole if os.environ.get(VARIABLE) else sample
