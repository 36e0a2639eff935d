"""The parts of tests/support/hosts/debian_root.py that need no root: whose files are whose, and that no path leads out
of an image.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.hosts.debian_root import home, ids, in_root, inside, need_debian_roots, on_disk


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\nme:x:10001:10002::/srv/me:/bin/false\n")
    (tmp_path / "etc/group").write_text("root:x:0:\nmine:x:10002:\nothers:x:7:me\n")
    return tmp_path


@pytest.mark.parametrize(
    ("owner", "numbers"),
    [
        ("me", (10001, 10002)),
        ("me:others", (10001, 7)),
        ("10001", (10001, 10002)),
        ("10001:5", (10001, 5)),
        ("4711", (4711, 0)),
        ("root", (0, 0)),
    ],
)
def test_owners_are_numbers_or_names_of_the_image(root: Path, owner: str, numbers: tuple[int, int]) -> None:
    assert ids(root, owner) == numbers


@pytest.mark.parametrize("owner", ["you", "me:yours", ""])
def test_a_name_that_the_image_does_not_have_is_an_error(root: Path, owner: str) -> None:
    with pytest.raises(AssertionError, match="the image has no"):
        ids(root, owner)


def test_a_user_has_the_home_that_the_image_says(root: Path) -> None:
    assert (home(root, "me"), home(root, "0:0"), home(root, "4711")) == ("/srv/me", "/root", "/")


def test_no_path_of_an_image_leads_out_of_it(root: Path) -> None:
    assert inside(root, "/etc/new/file") == root / "etc/new/file"
    (root / "run").symlink_to("/var/run")
    for path in ("/run/x", "/run", "/etc/../../x"):
        with pytest.raises(AssertionError):
            inside(root, path)


def test_a_command_gets_the_images_user_and_environment_and_no_other(root: Path) -> None:
    command = in_root(root, ["serve", "--all"], "me", "/srv", {"A": "b c"})
    begin = ("chroot", "--userspec=+10001:+10002", "--groups=10002", str(root), "/usr/bin/env", "-i", "--chdir=/srv")
    assert command == (*begin, "A=b c", "serve", "--all")


def test_a_path_on_a_disk_is_another_for_those_who_see_it_mounted() -> None:
    assert on_disk(Path("/proc/17/root/tmp/x/disk/base")) == Path("/tmp/x/disk/base")
    assert on_disk(Path("/tmp/data")) == Path("/tmp/data")


def test_a_machine_that_can_make_no_root_skips_with_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(pytest.skip.Exception, match="by root only"):
        need_debian_roots()
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda tool: None)
    with pytest.raises(pytest.skip.Exception, match="apt-get install debootstrap"):
        need_debian_roots()
