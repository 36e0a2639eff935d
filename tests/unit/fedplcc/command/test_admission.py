"""`fedplcc invite`, `join`, `client` and `ca`, against an aggregator's ports."""

from __future__ import annotations

import json
import stat
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fedplcc.aggregator.identity.admissions import Admissions
from fedplcc.aggregator.store.database.sql_store import SqlStore
from fedplcc.command.all_commands import app
from fedplcc.command.members.durations import seconds_of
from fedplcc.remote.admin_calls import ENDPOINT_FILE
from fedplcc.remote.own_address import invitation_address, own_address
from fedplcc.shared.errors import InvalidConfig
from fedplcc.shared.identity.credentials import IDENTITY_FILE, Credentials
from fedplcc.shared.identity.invitation_codes import InvitationCode
from fedplcc.shared.identity.standing import Standing
from fedplcc.shared.wire.enrolling.renewal import NEXT_KEY_FILE
from tests.support.identity.enrol_port import EnrolPort
from tests.support.identity.member_port import MemberPort
from tests.support.identity.memory_authority import MemoryAuthority


class Host:
    """Commands on the host of an aggregator."""

    def __init__(self, state_dir: Path, admissions: Admissions) -> None:
        self.state_dir, self.admissions = state_dir, admissions

    def run(self, *arguments: str, given: str | None = None) -> Result:
        is_owners = arguments[0] != "join"
        where = ("--state-dir", str(self.state_dir)) if is_owners else ()
        return CliRunner().invoke(app, [*arguments, *where], input=given)

    def invite(self, name: str, *options: str) -> str:
        result = self.run("invite", name, "--address", "127.0.0.1", *options)
        assert result.exit_code == 0, result.stderr
        return result.stdout


@pytest.fixture
def host(folder: Path) -> Iterator[Host]:
    authority = MemoryAuthority(time.time)
    with closing(SqlStore.in_folder(folder)) as store:
        admissions = Admissions(store, authority)
        with EnrolPort(admissions, authority) as enrol, MemberPort(admissions, authority, enrol, folder):
            yield Host(folder, admissions)


def test_a_site_joins_with_the_line_that_invite_prints(host: Host, tmp_path: Path) -> None:
    line = host.invite("north", "--domain", "photo", "--valid", "2h")
    assert line.startswith("fedplcc1_")
    result = host.run("join", "--state-dir", str(tmp_path / "site"), given=line)
    assert result.exit_code == 0, result.stderr
    held = Credentials.load(tmp_path / "site" / IDENTITY_FILE)
    assert (held.identity.name, held.domain, held.address) == ("north", "photo", "127.0.0.1:50051")
    assert stat.S_IMODE((tmp_path / "site" / IDENTITY_FILE).stat().st_mode) == 0o600
    assert not (tmp_path / "site" / NEXT_KEY_FILE).exists()
    assert InvitationCode.parse(line).secret.hex() not in result.output


def test_the_invitation_comes_from_a_file_or_the_environment_never_from_an_argument(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "invitation.txt"
    file.write_text(f"\n  {host.invite('north')}\n")
    assert host.run("join", "--state-dir", str(tmp_path / "north"), "--code-file", str(file)).exit_code == 0
    monkeypatch.setenv("FEDPLCC_JOIN", host.invite("south"))
    assert host.run("join", "--state-dir", str(tmp_path / "south")).exit_code == 0
    assert host.run("join", host.invite("west")).exit_code == 2


def test_a_member_that_names_no_folder_gets_its_roles_and_is_told_how_it_starts(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for invited, folder, begins in (
        (("north",), "trainer", "fedplcc trainer --data folder:PATH"),
        (("second", "--role", "gateway"), "gateway", "fedplcc gateway"),
        (("south",), "trainer-south", "fedplcc trainer --data folder:PATH --state-dir fedplcc-state/trainer-south"),
        (("north", "--replace"), "trainer", "fedplcc trainer --data folder:PATH"),
        (("prometheus", "--role", "monitor"), "monitor", ""),
    ):
        joined = host.run("join", given=host.invite(*invited))
        assert joined.exit_code == 0, joined.stderr
        held = Credentials.load(tmp_path / "fedplcc-state" / folder / IDENTITY_FILE)
        assert held.identity.name == invited[0]
        assert joined.stdout.endswith(f": fedplcc-state/{folder}\n")
        assert joined.stderr.partition("start it with: ")[2].strip() == begins
    assert not (tmp_path / "fedplcc-state" / "joining").exists()
    assert Credentials.load(tmp_path / "fedplcc-state/gateway" / IDENTITY_FILE).address == "127.0.0.1:50051"


def test_who_has_joined_joins_anew_only_on_purpose(host: Host, tmp_path: Path) -> None:
    site = str(tmp_path / "site")
    assert host.run("join", "--state-dir", site, given=host.invite("north")).exit_code == 0
    again = host.invite("north", "--replace")
    refused = host.run("join", "--state-dir", site, given=again)
    assert refused.exit_code == 1
    assert "client north already" in refused.stderr
    assert host.run("join", "--state-dir", site, "--replace", given=again).exit_code == 0
    assert host.admissions.standing(host.admissions.list_certificates()[1].serial) is Standing.REVOKED


def test_a_spent_line_and_a_wrong_one_are_told_apart(host: Host, tmp_path: Path) -> None:
    line = host.invite("north")
    assert host.run("join", "--state-dir", str(tmp_path / "one"), given=line).exit_code == 0
    spent = host.run("join", "--state-dir", str(tmp_path / "two"), given=line)
    assert spent.exit_code == 1
    assert "another key was certified with this invitation" in spent.stderr
    wrong = host.run("join", "--state-dir", str(tmp_path / "two"), given=line[:20] + line[21:])
    assert wrong.exit_code == 2
    assert "typed or copied wrongly" in wrong.stderr


def test_a_name_with_a_holder_needs_replace(host: Host, tmp_path: Path) -> None:
    host.run("join", "--state-dir", str(tmp_path / "site"), given=host.invite("north"))
    refused = host.run("invite", "north", "--address", "127.0.0.1")
    assert refused.exit_code == 1
    assert "--replace" in refused.stderr


def test_certificates_are_listed_and_revoked(host: Host, tmp_path: Path) -> None:
    host.run("join", "--state-dir", str(tmp_path / "site"), given=host.invite("north"))
    (held,) = json.loads(host.run("client", "list", "--json").stdout)["certificates"]
    assert (held["name"], held["role"], held["revoked_at"]) == ("north", "client", 0)
    assert held["serial"] in host.run("client", "list").stdout
    assert host.run("client", "revoke", "north").stdout == "client north: 1 certificate revoked\n"
    assert host.run("client", "revoke", "north").stdout == "client north: 0 certificates revoked\n"
    assert "revoked" in host.run("client", "list").stdout
    unknown = host.run("client", "revoke", "south")
    assert (unknown.exit_code, "no client 'south'" in unknown.stderr) == (1, True)


def test_the_root_is_rotated_once_nobody_needs_the_older_one(host: Host, tmp_path: Path) -> None:
    host.run("join", "--state-dir", str(tmp_path / "site"), given=host.invite("north"))
    assert len(host.run("ca", "rotate").stdout.split()) == 2
    refused = host.run("ca", "rotate", "--finish")
    assert (refused.exit_code, "client north" in refused.stderr) == (1, True)
    host.run("client", "revoke", "north")
    assert len(host.run("ca", "rotate", "--finish").stdout.split()) == 1


def test_without_an_aggregator_the_sentence_says_where_it_was_looked_for(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["client", "list", "--state-dir", str(tmp_path)])
    assert result.exit_code == 3
    assert str(tmp_path) in result.stderr


def test_an_aggregator_that_asks_nobody_has_an_empty_list_and_invites_nobody(tmp_path: Path) -> None:
    (tmp_path / ENDPOINT_FILE).write_text(json.dumps({"host": "127.0.0.1", "admin_socket": None}))
    listed = CliRunner().invoke(app, ["client", "list", "--json", "--state-dir", str(tmp_path)])
    assert (listed.exit_code, json.loads(listed.stdout)) == (0, {"certificates": []})
    assert "--insecure" in listed.stderr
    invited = CliRunner().invoke(app, ["invite", "north", "--state-dir", str(tmp_path)])
    assert (invited.exit_code, "--insecure" in invited.stderr) == (1, True)


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("30m", 1800), ("24h", 86_400), ("7d", 604_800)])
def test_durations_have_a_number_and_a_unit(text: str, seconds: float) -> None:
    assert seconds_of(text, "--valid") == seconds


@pytest.mark.parametrize("text", ["", "24", "h", "-1h", "1.5h", "1w", "1h2m", "٣h", "9" * 10 + "s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match="--valid"):
        seconds_of(text, "--valid")


def test_an_invitation_names_the_given_address_or_this_hosts_own() -> None:
    assert invitation_address("fl.example.org", "0.0.0.0", 50053) == "fl.example.org:50053"
    assert invitation_address("fl.example.org:9", "0.0.0.0", 50053) == "fl.example.org:9"
    assert invitation_address("2001:db8::1", "0.0.0.0", 50053) == "[2001:db8::1]:50053"
    assert invitation_address("", "0.0.0.0", 50053) == f"{own_address()}:50053"
    assert invitation_address("", "127.0.0.1", 50053) == "127.0.0.1:50053", "nobody reaches another address of it"
    with pytest.raises(InvalidConfig, match="insecure"):
        invitation_address("", "0.0.0.0", None)
    with pytest.raises(InvalidConfig, match="--address"):
        invitation_address("fl.example.org:x", "0.0.0.0", 50053)
