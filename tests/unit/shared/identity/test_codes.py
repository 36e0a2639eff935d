from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedplcc.shared.errors import InvalidConfig, KeyInvalid
from fedplcc.shared.identity.api_keys import Scope, api_key_text, includes, new_api_key, parse_api_key, roles_of
from fedplcc.shared.identity.invitation_codes import InvitationCode
from fedplcc.shared.identity.names import Role
from fedplcc.shared.identity.principals import ANYONE, NOBODY, OWNER, Principal

codes = st.builds(
    InvitationCode,
    address=st.from_regex(r"[a-z0-9.-]{1,200}:[1-9][0-9]{0,3}", fullmatch=True),
    certificate_sha256=st.binary(min_size=32, max_size=32),
    invitation_id=st.from_regex(r"[0-9a-f]{16}", fullmatch=True),
    secret=st.binary(min_size=32, max_size=32),
)
A_CODE = InvitationCode("fl.example.org:50053", b"a" * 32, "00112233445566ff", b"s" * 32)


@given(codes)
def test_an_invitation_is_read_as_it_was_written(code: InvitationCode) -> None:
    assert InvitationCode.parse(code.text) == code
    assert InvitationCode.parse(f"  {code.text[:40]}\r\n   {code.text[40:]}\n") == code, "as mail breaks lines"


@given(codes, st.data())
def test_an_invitation_with_another_letter_is_refused(code: InvitationCode, data: st.DataObject) -> None:
    place = data.draw(st.integers(len("fedplcc1_"), len(code.text) - 2))
    letter = data.draw(st.sampled_from("ABCxyz019-_".replace(code.text[place], "")))
    with pytest.raises(InvalidConfig, match="typed or copied wrongly"):
        InvitationCode.parse(code.text[:place] + letter + code.text[place + 1 :])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no invitation"),
        ("hello", "no invitation"),
        ("fedplcc1_", "no invitation"),
        ("fedplcc1_" + "A" * 100_000, "no invitation"),
        ("fedplcc1_AAAA", "typed or copied wrongly"),
        (A_CODE.text[:-3], "typed or copied wrongly"),
        (A_CODE.text.replace("fedplcc1_", "fedplcc2_"), "version 2, and this program reads version 1"),
        (A_CODE.text + "ü", "no invitation"),
        (A_CODE.text.replace("fedplcc1_", "fedplcc001_"), "no invitation"),
        (A_CODE.text.replace("fedplcc1_", "fedplcc\u0661_"), "no invitation"),
    ],
)
def test_what_is_no_invitation_is_told(text: str, said: str) -> None:
    with pytest.raises(InvalidConfig, match=said):
        InvitationCode.parse(text)


@pytest.mark.parametrize(
    "address",
    [
        "",
        "fl.example.org",
        ":50053",
        "fl:",
        "fl:0",
        "fl:65536",
        "fl:x",
        "a b:1",
        "fl:1\n",
        "[::1:50053",
        f"{'h' * 254}:1",
        "user@fl:1",
        "fl:123456",
    ],
)
def test_an_invitation_has_an_address_that_can_be_dialled(address: str) -> None:
    with pytest.raises(InvalidConfig, match="HOST:PORT"):
        replace(A_CODE, address=address)


@pytest.mark.parametrize("address", ["[::1]:50053", "[fe80::1%eth0]:50053", f"{'h' * 253}:65535"])
def test_an_invitation_takes_every_kind_of_address(address: str) -> None:
    code = replace(A_CODE, address=address)
    assert InvitationCode.parse(code.text) == code


@given(st.from_regex(r"[0-9a-f]{12}", fullmatch=True), st.binary(min_size=32, max_size=32))
def test_a_key_is_read_as_it_was_written(key_id: str, secret: bytes) -> None:
    assert parse_api_key(api_key_text(key_id, secret)) == (key_id, secret)


@pytest.mark.parametrize("place", range(7, 90, 9))
def test_a_mistyped_key_gets_the_answer_of_an_unknown_one(place: int) -> None:
    _, _, text = new_api_key()
    wrong = text[:place] + ("0" if text[place] != "0" else "1") + text[place + 1 :]
    said = []
    for given_text in (wrong, "", "x" * 1_000_000, text.upper()):
        with pytest.raises(KeyInvalid) as refusal:
            parse_api_key(given_text)
        said.append(refusal.value.detail)
    assert len(set(said)) == 1


def test_a_scope_includes_those_before_it_and_metrics_stands_alone() -> None:
    ladder = [Scope.READ, Scope.RESULTS, Scope.RUN, Scope.ADMIN]
    for held in ladder:
        assert [scope for scope in ladder if includes({held}, scope)] == ladder[: ladder.index(held) + 1]
        assert not includes({held}, Scope.METRICS)
    assert [scope for scope in Scope if includes({Scope.METRICS}, scope)] == [Scope.METRICS]
    assert not any(includes((), scope) for scope in Scope)


def test_every_role_renews_its_own_certificate_and_nothing_more() -> None:
    assert roles_of("/fedplcc.v1.AdminService/RenewCertificate") == {Role.CLIENT, Role.GATEWAY, Role.MONITOR}
    assert roles_of("/fedplcc.v1.AdminService/RevokeKey") == {Role.GATEWAY}
    assert roles_of("/fedplcc.v1.RoundService/GetCaller") == {Role.CLIENT}
    assert roles_of("/elsewhere/Method") == frozenset()


def test_a_caller_is_named_by_what_it_showed() -> None:
    gateway = Principal(role=Role.GATEWAY, name="main", serial="1f")
    assert (gateway.caller, gateway.credential) == ("gateway:main", "1f")
    person = Principal(role=Role.GATEWAY, name="main", serial="1f", key_id="aabb", scopes=frozenset({Scope.RUN}))
    assert (person.caller, person.credential) == ("key:aabb", "aabb")
    assert (OWNER.caller, ANYONE.caller, NOBODY.caller) == ("owner", "anyone", "nobody")
    assert not gateway.may(Scope.READ), "a gateway alone can do nothing"
    assert person.may(Scope.READ)
    assert not person.may(Scope.ADMIN)
    assert OWNER.may(Scope.ADMIN)
    assert ANYONE.may(Scope.METRICS)
