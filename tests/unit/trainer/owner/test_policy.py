"""The file of a policy: what is wrong with it keeps a trainer from starting, and the written one explains every key."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fedplcc.shared.config.sections import dotted_keys
from fedplcc.shared.config.settings import EXIT_CONFIG
from fedplcc.shared.errors import InvalidConfig
from fedplcc.shared.types import LogLevel
from fedplcc.trainer.owner.policy import MAX_POLICY_BYTES, NO_POLICY, Policy, read_policy
from fedplcc.trainer.owner.policy_text import policy_sentences, policy_template
from fedplcc.trainer.owner.refusals import least_budget


def _loop(path: Path) -> None:
    path.symlink_to(path.with_name("other"))
    path.with_name("other").symlink_to(path)


WRONG: dict[str, tuple[Callable[[Path], object], str]] = {
    "absent": (lambda path: None, "No such file"),
    "a folder": (lambda path: path.mkdir(), "Is a directory"),
    "a loop of links": (_loop, "Too many levels of symbolic links"),
    "a pipe, whose writer never comes": (lambda path: os.mkfifo(path), "it is no regular file"),
    "a device without an end": (lambda path: path.symlink_to("/dev/zero"), "it is no regular file"),
    "huge": (lambda path: path.write_bytes(b"#" * (MAX_POLICY_BYTES + 1)), f"more than {MAX_POLICY_BYTES} bytes"),
    "no TOML": (lambda path: path.write_text("approve ="), "is not TOML"),
    "no text": (lambda path: path.write_bytes(b"\xff\xfe"), "is not TOML"),
    "nested without end": (lambda path: path.write_text("a = " + "[" * 100_000), "is not TOML"),
    "a number of 5,000 digits": (lambda path: path.write_text("runs.most_rounds = " + "9" * 5000), "is not TOML"),
    "an unknown table": (lambda path: path.write_text("[run]"), "unknown key 'run'; did you mean 'runs'?"),
    "an unknown key": (lambda path: path.write_text("[runs]\nmethod = 1"), "did you mean 'runs.methods'?"),
    "a number as text": (lambda path: path.write_text('runs.most_rounds = "3"'), "write a whole number"),
    "a truth value as number": (lambda path: path.write_text("leaves.models = 0"), "write true or false"),
    "a text as list": (lambda path: path.write_text('runs.methods = "fedavg"'), "it must be a list"),
    "no table": (lambda path: path.write_text("leaves = false"), "leaves is a table of keys, not false"),
    "no SHA-256": (lambda path: path.write_text('runs.backbones = ["abc"]'), "write a SHA-256"),
    "no code": (lambda path: path.write_text('runs.allow_code = ["abc"]'), "write package.module:factory"),
    "out of range": (lambda path: path.write_text("thresholds.class_images = 0"), "it must be at least 1"),
    "a claim that no named method has": (
        lambda path: path.write_text('privacy.claim = "site"\nruns.methods = ["fedavg", "fedproto"]'),
        'privacy.claim = "site" is true of method classsums alone',
    ),
    "a delta of no epsilon": (lambda path: path.write_text("privacy.delta = 1e-7"), "without it nothing is limited"),
    "what no run passes": (
        lambda path: path.write_text('thresholds.class_images = 2\nprivacy.claim = "site"'),
        "no run would pass",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_policy_that_cannot_be_used_is_refused_with_a_sentence(case: str, tmp_path: Path) -> None:
    make, sentence = WRONG[case]
    path = tmp_path / "policy.toml"
    make(path)
    with pytest.raises(InvalidConfig, match=re.escape(sentence)) as caught:
        read_policy(path)
    assert str(path) in caught.value.detail


@pytest.mark.parametrize("case", ["a loop of links", "huge", "an unknown key"])
def test_a_trainer_does_not_start_with_it(case: str, tmp_path: Path) -> None:
    make, sentence = WRONG[case]
    make(tmp_path / "policy.toml")
    flags = ["--client", "ann", "--data", "digits:mnist", "--insecure", "--policy", "policy.toml"]
    command = [sys.executable, "-m", "fedplcc.trainer", *flags]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == EXIT_CONFIG
    assert sentence in done.stdout + done.stderr
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == [], "nothing was begun"


def test_a_path_that_no_file_has_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="cannot read the policy"):
        read_policy(Path("a\0b"))


def test_the_written_file_explains_each_key_and_forbids_nothing(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(policy_template())
    assert read_policy(path) == NO_POLICY
    written = policy_template()
    for key, _ in dotted_keys(Policy):
        assert re.search(rf"^(# )?{key} = ", written, re.MULTILINE), key


def test_each_example_of_the_written_file_is_a_value_of_its_key(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    in_force = re.sub(r"^# ([a-z_]+ = )", r"\1", policy_template(), flags=re.MULTILINE)
    path.write_text(in_force.replace("class_images = 10", "class_images = 1"))
    policy = read_policy(path)
    kept = dict.fromkeys(policy.leaves.model_fields_set, False)
    assert policy.leaves.model_dump() == {**kept, "logs": LogLevel.WARNING}
    assert set(policy.runs.model_fields_set) == set(type(policy.runs).model_fields)


def test_sentences_say_what_each_key_allows(tmp_path: Path) -> None:
    """A key that is given changes what is said, so that no key is forgotten."""
    path, before = tmp_path / "policy.toml", policy_sentences(NO_POLICY)
    given = [line for line in re.sub(r"^# ", "", policy_template(), flags=re.MULTILINE).splitlines()]
    tables = {key: table for key, table in _tables(given)}
    for key, (table, line) in tables.items():
        more = "\nepsilon = 1.0" if key == "delta" else ""
        path.write_text(f"[{table}]\n{line}{more}")
        assert policy_sentences(read_policy(path)) != before, key
    assert "Thresholds lower what attacks find; there is no guarantee in them." in _said(
        path, "thresholds.test_images = 2"
    )
    assert "Thresholds" not in " ".join(before)
    for approve in ("matching", "always"):
        assert _said(path, f'approve = "{approve}"') != before, approve


def _tables(lines: list[str]) -> list[tuple[str, tuple[str, str]]]:
    found, table = [], ""
    for line in lines:
        if line.startswith("["):
            table = line.strip("[]")
        elif table and re.match(r"[a-z_]+ = ", line):
            found.append((line.partition(" ")[0], (table, line)))
    return found


def _said(path: Path, text: str) -> list[str]:
    path.write_text(text)
    return policy_sentences(read_policy(path))


@pytest.mark.parametrize(
    ("policy", "settings", "limit"),
    [
        ((None, 1e-5), (None, 1e-5), (None, 1e-5)),
        ((None, 1e-5), (3.0, 1e-6), (3.0, 1e-6)),
        ((2.0, 1e-4), (None, 1e-5), (2.0, 1e-4)),
        ((2.0, 1e-5), (3.0, 1e-5), (2.0, 1e-5)),
        ((3.0, 1e-5), (2.0, 1e-5), (2.0, 1e-5)),
        ((3.0, 1e-5), (3.1, 1e-7), (3.1, 1e-7)),
    ],
)
def test_of_two_limits_on_releases_the_smaller_holds(
    policy: tuple[float | None, float], settings: tuple[float | None, float], limit: tuple[float | None, float]
) -> None:
    privacy = {} if policy[0] is None else {"epsilon": policy[0], "delta": policy[1]}
    given = Policy.model_validate({"privacy": privacy})
    assert least_budget(given, *settings) == limit
