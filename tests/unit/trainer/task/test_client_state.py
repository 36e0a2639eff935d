"""Client state that outlives a trainer's restarts: the rule, the folder, and a client that is killed at every step of it."""

from __future__ import annotations

import itertools
import json
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedplcc.shared.config.run import canonical_json
from fedplcc.shared.errors import DiskFull, StoreUnavailable
from fedplcc.shared.tensors import blob_ref, sha256_hex, to_bytes
from fedplcc.shared.types import MODEL, BlobRef, CommittedUpdate, ForgottenRun, Membership, Payload, Update
from fedplcc.trainer.task.client_state import ClientStates
from fedplcc.trainer.task.manifest import (
    CLIENT_STATE,
    MANIFEST,
    VERSION,
    Manifest,
    Promoted,
    Staged,
    is_outdated,
    promote,
    settled,
    without,
)
from tests.support.failpoints import hooked, killed_at

STEP = "trainer.state."


def a_state(number: int) -> dict[str, np.ndarray]:
    return {"weight": np.full(50, number, np.float32)}


def an_entry(round_number: int = 1, run_id: str = "run-a", **changes: Any) -> tuple[Staged, dict[str, bytes]]:
    """A finished update whose client state differs from its model."""
    model, state = to_bytes({"weight": np.arange(50, dtype=np.float32) + round_number}), to_bytes(a_state(round_number))
    group, kept = blob_ref(MODEL, model), blob_ref(CLIENT_STATE, state)
    update = Update(
        client_id="ann",
        payload=Payload(tensor_groups=(group,), int_lists={"few": (1, 2)}),
        num_examples=3,
        class_counts=(1, 2),
        losses={"ce": 0.1 + round_number},
        timings={"train_seconds": 1.5},
    )
    values = {"identity": f"{run_id} {round_number}", "run_id": run_id, "round": round_number, "update": update}
    staged = Staged(**{**values, "keeps_state": True, "state": kept, **changes})
    return staged, {group.sha256: model, kept.sha256: state}


def a_membership(
    committed: CommittedUpdate | None = None, open_runs: tuple[str, ...] = ("run-a", "run-b")
) -> Membership:
    return Membership(
        heartbeat_interval_s=1.0,
        lease_s=5.0,
        max_chunk_bytes=1,
        max_blob_bytes=1,
        last_committed=committed,
        open_runs=open_runs,
    )


class TestRule:
    """Staged is round 2 of run-a; promoted is round 1 of run-a."""

    STAGED, _ = an_entry(2)
    BEFORE = Promoted(update=an_entry(1)[0].committed, state=an_entry(1)[0].state)
    KEPT = Manifest(staged=STAGED, promoted={"run-a": BEFORE})
    AFTER = Promoted(update=STAGED.committed, state=STAGED.state)

    @pytest.mark.parametrize("wanted", [("run-a", "run-a 2"), ("run-a", "run-a 3"), ("run-b", "run-b 1")])
    def test_what_is_the_newest_committed_is_promoted_whatever_is_wanted_now(self, wanted: tuple[str, str]) -> None:
        run_id, identity = wanted
        after = settled(self.KEPT, a_membership(self.STAGED.committed), run_id=run_id, identity=identity)
        assert after == Manifest(promoted={"run-a": self.AFTER})

    @pytest.mark.parametrize("committed", [None, BEFORE.update, an_entry(5, "run-b")[0].committed])
    def test_what_is_not_committed_stays_while_exactly_it_is_wanted(self, committed: CommittedUpdate | None) -> None:
        assert settled(self.KEPT, a_membership(committed), run_id="run-a", identity="run-a 2") == self.KEPT

    @pytest.mark.parametrize("identity", ["run-a 3", "run-a 2 on other data", "run-a 1"])
    def test_what_is_not_committed_goes_where_its_run_wants_something_else(self, identity: str) -> None:
        after = settled(self.KEPT, a_membership(self.BEFORE.update), run_id="run-a", identity=identity)
        assert after == Manifest(promoted={"run-a": self.BEFORE})

    def test_what_is_not_committed_stays_while_another_run_is_worked_on(self) -> None:
        assert settled(self.KEPT, a_membership(), run_id="run-b", identity="run-b 1") == self.KEPT

    def test_other_blobs_under_the_same_round_are_another_update(self) -> None:
        other = replace(self.STAGED.committed, sha256s=("0" * 64,))
        after = settled(self.KEPT, a_membership(other), run_id="run-a", identity="run-a 3")
        assert after.staged is None
        assert after.promoted == {"run-a": self.BEFORE}

    def test_what_belongs_to_a_run_that_has_ended_goes(self) -> None:
        gone = settled(self.KEPT, a_membership(open_runs=("run-b",)), run_id="run-b", identity="run-b 1")
        assert gone == Manifest()

    def test_a_method_without_client_state_leaves_nothing(self) -> None:
        staged, _ = an_entry(2, keeps_state=False, state=None)
        assert promote(Manifest(staged=staged)) == Manifest()

    @pytest.mark.parametrize("number", [-1, 0, 1, 2, 3])
    def test_a_run_that_is_to_forget_the_client_goes_up_to_its_round_and_no_other_run(self, number: int) -> None:
        sent, other = {"run-a": an_entry(1)[0], "run-b": an_entry(1, "run-b")[0]}, an_entry(1, "run-b")[0].committed
        kept = replace(
            self.KEPT, promoted={"run-a": self.BEFORE, "run-b": Promoted(update=other, state=None)}, sent=sent
        )
        after = without(kept, [ForgottenRun("run-a", number), ForgottenRun("run-c", 9)])
        assert after.staged == (self.STAGED if number < 2 else None)
        assert after.promoted.keys() == after.sent.keys() == ({"run-a", "run-b"} if number < 1 else {"run-b"})
        membership = replace(a_membership(), forgotten_runs=(ForgottenRun("run-a", number),))
        assert settled(kept, membership, run_id="run-b", identity="run-b 2") == after

    @pytest.mark.parametrize(
        ("committed", "round_number", "outdated"),
        [
            (None, 3, False),
            (AFTER.update, 3, False),
            (an_entry(7, "run-b")[0].committed, 3, False),
            (an_entry(1)[0].committed, 3, True),  # the aggregator knows less: it was restored
            (an_entry(3)[0].committed, 4, True),  # it knows more: this folder was restored
            (None, 2, True),
            (None, 1, True),
        ],
    )
    def test_a_state_counts_only_as_that_of_the_last_committed_update(
        self, committed: CommittedUpdate | None, round_number: int, outdated: bool
    ) -> None:
        assert is_outdated(self.AFTER, committed, round=round_number) is outdated


class TestFolder:
    def test_nothing_is_made_before_there_is_something_to_keep(self, tmp_path: Path) -> None:
        states = ClientStates(tmp_path / "deep" / "er")
        assert (states.manifest, states.state("run-a"), states.finished("x")) == (Manifest(), None, None)
        states.drop()
        states.promote()
        assert not (tmp_path / "deep").exists()

    def test_what_is_staged_is_found_by_the_next_process_with_its_bytes(self, tmp_path: Path) -> None:
        staged, blobs = an_entry()
        ClientStates(tmp_path / "kept").stage(staged, blobs)
        assert ClientStates(tmp_path / "kept").finished(staged.identity) == (staged, blobs)
        assert ClientStates(tmp_path / "kept").finished("other work") is None
        assert ClientStates(tmp_path / "kept").state("run-a") is None

    def test_a_promoted_state_is_read_and_its_update_let_go_of(self, tmp_path: Path) -> None:
        staged, blobs = an_entry(4)
        states = ClientStates(tmp_path)
        states.stage(staged, blobs)
        states.promote()
        again = ClientStates(tmp_path)
        assert (again.state("run-a") or {})["weight"].tolist() == [4.0] * 50
        assert names(tmp_path) == {MANIFEST} | again.manifest.sha256s
        assert len(names(tmp_path)) == 2
        assert again.manifest == states.manifest

    def test_a_state_that_is_the_model_is_kept_once(self, tmp_path: Path) -> None:
        staged, blobs = an_entry()
        (group,) = staged.update.payload.tensor_groups
        states = ClientStates(tmp_path)
        states.stage(replace(staged, state=BlobRef(CLIENT_STATE, group.sha256, group.size_bytes)), blobs)
        assert names(tmp_path) == {MANIFEST, group.sha256}

    def test_one_update_and_one_state_of_each_run_are_all_that_it_ever_holds(self, tmp_path: Path) -> None:
        states = ClientStates(tmp_path)
        for round_number in range(1, 6):
            for run_id in ("run-a", "run-b"):
                states.stage(*an_entry(round_number, run_id))
                assert len(names(tmp_path)) <= 1 + 2 + 2
                states.promote()
        states.settle(a_membership(open_runs=()), run_id="run-c", identity="run-c 1")
        assert names(tmp_path) == set()

    def test_nothing_of_a_run_that_is_to_forget_the_client_is_kept_any_more_but_for_later_rounds(
        self, tmp_path: Path
    ) -> None:
        """Also an update that a task, which is about to be cancelled, stages after the deletion."""
        states = ClientStates(tmp_path, keeps_sent=True)
        for run_id in ("run-a", "run-b"):
            states.stage(*an_entry(2, run_id))
            states.promote()
        states.forget_runs([ForgottenRun("run-a", 3)])
        kept = Manifest(promoted=states.manifest.promoted, sent=states.manifest.sent)
        assert (states.manifest, states.manifest.run_ids) == (kept, {"run-b"})
        states.stage(*an_entry(3))
        states.promote()
        assert ClientStates(tmp_path).manifest == kept
        assert names(tmp_path) - {MANIFEST} == kept.sha256s
        states.stage(*an_entry(4))
        assert ClientStates(tmp_path).manifest.run_ids == {"run-a", "run-b"}

    def test_a_run_is_deleted_by_one_thread_while_another_one_stages(self, tmp_path: Path) -> None:
        states = ClientStates(tmp_path)
        deleted = threading.Thread(target=states.forget_runs, args=([ForgottenRun("run-a", 9)],))

        def meanwhile(name: str) -> None:
            if name == f"{STEP}blob.write.before" and not deleted.ident:
                deleted.start()

        with hooked(meanwhile):
            states.stage(*an_entry(1))
            deleted.join()
        assert ClientStates(tmp_path).manifest == Manifest()
        assert names(tmp_path) == set()

    def test_others_cannot_read_what_is_kept(self, tmp_path: Path) -> None:
        ClientStates(tmp_path).stage(*an_entry())
        assert {path.stat().st_mode & 0o077 for path in tmp_path.iterdir()} == {0}

    def test_staging_twice_writes_once(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        staged, blobs = an_entry()
        states = ClientStates(tmp_path)
        states.stage(staged, blobs)
        written = (tmp_path / MANIFEST).stat().st_mtime_ns
        states.stage(staged, {})
        assert (tmp_path / MANIFEST).stat().st_mtime_ns == written


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def flip(path: Path, position: int = -1) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


class TestDamage:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        states = ClientStates(tmp_path)
        states.stage(*an_entry(1))
        states.promote()
        states.stage(*an_entry(2))
        return tmp_path

    @pytest.mark.parametrize("damage", [flip, Path.unlink, lambda path: path.write_bytes(b"")])
    def test_a_damaged_update_is_trained_again_and_the_state_before_it_is_there(
        self, folder: Path, damage: Callable[..., Any]
    ) -> None:
        staged, _ = an_entry(2)
        for sha256 in Manifest(staged=staged).sha256s:
            ClientStates(folder).stage(*an_entry(2))
            damage(folder / sha256)
            states = ClientStates(folder)
            assert states.finished(staged.identity) is None
            assert states.manifest.staged is None
            assert (states.state("run-a") or {})["weight"][0] == 1

    @pytest.mark.parametrize("damage", [flip, Path.unlink])
    def test_a_damaged_state_begins_anew_and_the_finished_update_is_there(
        self, folder: Path, damage: Callable[..., Any]
    ) -> None:
        (sha256,) = promote(Manifest(staged=an_entry(1)[0])).sha256s
        damage(folder / sha256)
        states = ClientStates(folder)
        assert states.state("run-a") is None
        assert states.manifest.promoted == {}
        assert ClientStates(folder).finished(an_entry(2)[0].identity) is not None

    @pytest.mark.parametrize(
        "content", [b"", b"{}", b"[]", b"\xff", b'{"version": "2"}', b'{"version": 1, "content": {}, "sha256": "0"}']
    )
    def test_a_damaged_manifest_means_that_nothing_is_kept(self, folder: Path, content: bytes) -> None:
        (folder / MANIFEST).write_bytes(content)
        states = ClientStates(folder)
        assert states.manifest == Manifest()
        states.stage(*an_entry(3))
        assert ClientStates(folder).finished(an_entry(3)[0].identity) is not None

    @pytest.mark.parametrize("is_field", [False, True], ids=["another form", "another field"])
    def test_what_a_newer_version_keeps_is_refused_and_stays(self, folder: Path, is_field: bool) -> None:
        document = json.loads((folder / MANIFEST).read_bytes())
        if is_field:
            document["content"]["later"] = {}
            document["sha256"] = sha256_hex(canonical_json(document["content"]).encode())
        else:
            document = {"version": VERSION + 1}
        (folder / MANIFEST).write_text(json.dumps(document))
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        states = ClientStates(folder)
        for touch in (lambda: states.manifest, lambda: states.stage(*an_entry(3))):
            with pytest.raises(StoreUnavailable, match="a newer version than fedplcc"):
                touch()
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before

    def test_every_flipped_bit_of_the_manifest_is_noticed(self, folder: Path) -> None:
        whole, kept = (folder / MANIFEST).read_bytes(), ClientStates(folder).manifest
        for position in range(0, len(whole), 7):
            flip(folder / MANIFEST, position)
            assert ClientStates(folder).manifest in (Manifest(), kept), position
            (folder / MANIFEST).write_bytes(whole)


def test_a_process_that_is_killed_at_any_step_of_changing_what_is_kept_loses_nothing(tmp_path: Path) -> None:
    """After the kill the folder is as before the operation or as after it, and the operation done again ends as if alone."""
    first, second = an_entry(1), an_entry(2)
    operations: Mapping[str, Any] = {
        "stage": lambda states: states.stage(*second),
        "promote": lambda states: states.promote(),
        "drop": lambda states: states.drop(),
        "forget": lambda states: states.forget_runs([ForgottenRun("run-a", 1)]),
    }
    covered = set()
    for name, operation in operations.items():
        for at in itertools.count(1):
            folder = tmp_path / f"{name}-{at}"
            states = ClientStates(folder)
            states.stage(*first)
            if name == "stage":
                states.promote()
            before = states.manifest
            with killed_at(at, STEP) as passed:
                operation(states)
            found = ClientStates(folder)
            after = {
                "stage": replace(before, staged=second[0]),
                "promote": promote(before),
                "drop": Manifest(),
                "forget": Manifest(),
            }[name]
            assert found.manifest in (before, after), (name, passed[-1])
            assert names(folder) - {MANIFEST} == found.manifest.sha256s, (name, passed[-1])
            operation(found)
            assert ClientStates(folder).manifest == after
            assert names(folder) - {MANIFEST} == after.sha256s, (name, passed[-1])
            if len(passed) < at:
                break
            covered.add(passed[-1])
    assert {
        f"{STEP}{what}.{when}" for what in ("blob.write", "manifest.rename") for when in ("before", "after")
    } <= covered
    assert len(covered) >= 20


class TestFullDisk:
    def test_what_was_kept_stays_and_no_half_file_takes_room(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        states = ClientStates(tmp_path)
        states.stage(*an_entry(1))
        states.promote()
        before = names(tmp_path)

        real = os.fsync

        def full(descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(DiskFull, match="No space left on device; make room on its disk") as refused:
            states.stage(*an_entry(2))
        assert str(tmp_path) not in refused.value.detail
        assert names(tmp_path) == before
        assert ClientStates(tmp_path).manifest == states.manifest
        monkeypatch.setattr(os, "fsync", real)
        states.stage(*an_entry(2))
        assert ClientStates(tmp_path).finished(an_entry(2)[0].identity) is not None

    def test_a_folder_that_cannot_be_made_is_an_error_of_the_store(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("in the way")
        states = ClientStates(tmp_path / "file" / "kept")
        with pytest.raises(
            StoreUnavailable, match="cannot be used: Not a directory; see that it can be read and written"
        ):
            states.stage(*an_entry())
