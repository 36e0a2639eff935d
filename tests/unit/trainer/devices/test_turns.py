import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Never

import pytest

from fedplcc.trainer.cancellation import Cancelled, never
from fedplcc.trainer.devices.turns import Turns
from tests.support.records.captured_logs import logged

HOLDER = """
import sys
from pathlib import Path
from fedplcc.trainer.cancellation import never
from fedplcc.trainer.devices.turns import Turns
with Turns(sys.argv[2:], Path(sys.argv[1])).taken(never):
    print("has it", flush=True)
    sys.stdin.read()
print("gave it back", flush=True)
"""


@contextmanager
def holder(folder: Path, *cards: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the turn until its stdin closes."""
    command = [sys.executable, "-c", HOLDER, str(folder), *cards]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "has it\n"
        try:
            yield process
        finally:
            process.kill()


def fail() -> Never:
    raise AssertionError("it waits for nothing")


def test_who_waits_says_so_once_and_gets_the_turn_that_the_other_gives_back(tmp_path: Path) -> None:
    asked = []
    with logged() as lines, holder(tmp_path / "turns", "card-a", "card-b") as other:

        def should_stop() -> bool:
            asked.append(other.poll())
            if len(asked) == 3:  # it has waited twice by then
                assert other.stdin is not None
                other.stdin.close()
            return False

        with Turns(["card-b"], tmp_path / "turns").taken(should_stop):
            assert len(asked) >= 3
            assert other.stdout is not None
            assert other.stdout.readline() == "gave it back\n"
    assert [line["device"] for line in lines("waits_for_turn")] == ["card-b"]


def test_a_killed_process_frees_its_turn_and_a_stop_ends_the_wait(tmp_path: Path) -> None:
    with holder(tmp_path / "turns", "card") as other:
        turns = Turns(["card"], tmp_path / "turns")
        with pytest.raises(Cancelled), turns.taken(iter([False, False, True, True]).__next__):
            fail()
        other.kill()
        with turns.taken(never):
            pass


def test_other_cards_and_processors_wait_for_nobody(tmp_path: Path) -> None:
    with (
        logged() as lines,
        holder(tmp_path / "turns", "card"),
        Turns(["other card"], tmp_path / "turns").taken(never),
        Turns().taken(fail),
    ):
        pass
    assert lines() == []


@pytest.mark.parametrize("kind", ["open to others", "a link", "a file", "a linked lock"])
def test_a_folder_that_others_could_hold_or_redirect_gives_no_turns_which_is_said_once(
    kind: str, tmp_path: Path
) -> None:
    folder, elsewhere = tmp_path / "turns", tmp_path / "elsewhere"
    elsewhere.mkdir(0o700)
    if kind == "open to others":
        folder.mkdir()
        folder.chmod(0o755)
    elif kind == "a link":
        folder.symlink_to(elsewhere)
    elif kind == "a file":
        folder.write_text("")
    else:
        folder.mkdir(0o700)
        (folder / "card").symlink_to(elsewhere / "card")
    turns = Turns(["card"], folder)
    with logged() as lines:
        for _ in range(2):
            with turns.taken(never), Turns(["card"], folder).taken(never):
                pass
    assert list(elsewhere.iterdir()) == []
    assert [line["event"] for line in lines()] == ["no_turns"] * 3  # of `turns` one, of each other one
