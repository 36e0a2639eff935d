from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedplcc.shared.bounds import NAME_PATTERN
from fedplcc.shared.errors import MalformedRequest
from fedplcc.shared.identity.names import FEDERATION_PATTERN, Identity, Role

identities = st.builds(
    Identity,
    st.from_regex(FEDERATION_PATTERN, fullmatch=True),
    st.sampled_from(Role),
    st.from_regex(NAME_PATTERN, fullmatch=True),
)


@given(identities)
def test_a_name_is_read_as_it_was_written(identity: Identity) -> None:
    assert Identity.parse(identity.uri) == identity


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "http://f000000000000001/client/north",
        "spiffe://f000000000000001/client",
        "spiffe://f000000000000001/client/north/more",
        "spiffe://f000000000000001/owner/north",
        "spiffe://F000000000000001/client/north",
        "spiffe://f00000000000001/client/north",
        "spiffe://f000000000000001/client/..",
        "spiffe://f000000000000001/client/a b",
        "spiffe://f000000000000001/client/north\n",
        "spiffe://f000000000000001/client/" + "a" * 65,
        "spiffe://" + "f" * 100_000,
    ],
)
def test_a_name_of_another_shape_is_refused(uri: str) -> None:
    with pytest.raises(MalformedRequest, match="spiffe://FEDERATION/ROLE/NAME"):
        Identity.parse(uri)
