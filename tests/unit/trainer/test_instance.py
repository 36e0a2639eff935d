from pathlib import Path

import pytest

from fedplcc.shared.errors import InvalidConfig, StoreUnavailable
from fedplcc.trainer.instance import held_state_dir


def test_the_token_is_the_same_over_restarts_and_another_for_another_directory(tmp_path: Path) -> None:
    tokens = []
    for name in ("one", "one", "two"):
        with held_state_dir(tmp_path / name) as token:
            tokens.append(token)
    assert tokens[0] == tokens[1] != tokens[2]
    assert all(16 <= len(token) <= 128 for token in tokens)


def test_nobody_else_can_read_the_token(tmp_path: Path) -> None:
    with held_state_dir(tmp_path):
        assert (tmp_path / "instance-token").stat().st_mode & 0o077 == 0


def test_two_trainers_cannot_share_a_state_directory(tmp_path: Path) -> None:
    with (
        held_state_dir(tmp_path),
        pytest.raises(InvalidConfig, match="another trainer uses the state directory"),
        held_state_dir(tmp_path),
    ):
        pass
    with held_state_dir(tmp_path):
        pass


@pytest.mark.parametrize("content", ["", "short", "x" * 500, "ünicode" * 5])
def test_a_token_that_a_crash_left_half_written_is_made_anew(tmp_path: Path, content: str) -> None:
    (tmp_path / "instance-token").write_text(content, encoding="utf-8")
    with held_state_dir(tmp_path) as token:
        assert token != content
    with held_state_dir(tmp_path) as again:
        assert again == token


def test_a_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(StoreUnavailable, match=str(file)), held_state_dir(file):
        pass
