"""A damaged or missing blob: its client is asked again, and what nobody can send again waits for a person."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fedplcc.shared.reasons import BlobDamaged, UpdateDamaged, sentence_of
from fedplcc.shared.steering import PauseRun, ResumeRun, StopRun
from fedplcc.shared.types import BlobRef, RoundPhase, Run, RunStatus, TaskKind
from tests.support.federation.in_process import LocalFederation


def flip(path: Path) -> None:
    """Flip one bit in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def flip_header(path: Path) -> None:
    """Flip one bit of the first byte, which is the length of a header."""
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    """Remove a file's second half."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


DAMAGE: dict[str, Callable[[Path], object]] = {
    "flipped": flip,
    "header": flip_header,
    "cut": cut,
    "empty": lambda path: path.write_bytes(b""),
    "gone": Path.unlink,
}


@pytest.fixture(params=DAMAGE)
def damage(request: pytest.FixtureRequest) -> Callable[[Path], object]:
    return DAMAGE[request.param]


def undisturbed(folder: Path) -> list[str]:
    state = folder / "undisturbed"
    with LocalFederation.small(state) as federation:
        return federation.metrics_lines(federation.whole_run().run_id)


def collected(federation: LocalFederation) -> Run:
    """A run whose round 1 has both updates and waits to be aggregated."""
    federation.join()
    run = federation.create("fedplcc")
    federation.step()
    for client in federation.clients.values():
        federation.perform(client, federation.task(client))
    run = federation.coordinator.get_run(run.run_id)
    assert run.current_round is not None
    assert run.current_round.phase is RoundPhase.AGGREGATING
    return run


def blobs_of(run: Run, client_id: str) -> tuple[BlobRef, ...]:
    assert run.current_round is not None
    return run.current_round.updates[client_id].payload.blobs


@pytest.mark.parametrize("is_new", [True, False], ids=["started again", "running"])
@pytest.mark.parametrize("which", [0, 1], ids=["model", "prototypes"])
def test_a_client_whose_stored_update_is_damaged_is_asked_again_and_the_run_ends_in_the_same_bytes(
    folder: Path, damage: Callable[[Path], None], which: int, is_new: bool
) -> None:
    """An aggregator that has checked the update when it came finds the damage as well."""
    lines = undisturbed(folder)
    with LocalFederation.small(folder / "damaged") as federation:
        run = collected(federation)
        blob = blobs_of(run, "bob")[which]
        if is_new:
            federation.start_again()
        damage(federation.path_of(blob))
        federation.coordinator.work()
        run = federation.coordinator.get_run(run.run_id)
        assert run.status is RunStatus.RUNNING
        assert run.reason == UpdateDamaged(round_number=1, blobs={"bob": (blob.sha256,)})
        assert "bob" in sentence_of(run.reason)
        assert blob.sha256[:12] in sentence_of(run.reason)
        federation.join()
        ann, bob = (federation.clients[name] for name in ("ann", "bob"))
        assert federation.task(ann).kind is TaskKind.WAIT, "what is whole is not asked for again"
        task = federation.task(bob)
        assert (task.kind, task.round, task.missing) == (TaskKind.TRAIN, 1, (blob.sha256,))
        run = federation.run_to_end(run.run_id)
        assert run.status is RunStatus.COMPLETED
        assert federation.metrics_lines(run.run_id) == lines
        (event,) = federation.events(run.run_id, "update_damaged")
        assert (event.client_id, event.round, event.data) == ("bob", 1, {"sha256s": [blob.sha256]})


def test_a_client_whose_update_was_damaged_may_be_damaged_again(folder: Path) -> None:
    lines = undisturbed(folder)
    with LocalFederation.small(folder / "damaged") as federation:
        run = collected(federation)
        keys = []
        for _ in range(3):
            blob = blobs_of(federation.coordinator.get_run(run.run_id), "bob")[0]
            federation.start_again()
            flip(federation.path_of(blob))
            federation.coordinator.work()
            federation.join()
            bob = federation.clients["bob"]
            keys.append(federation.task(bob).key)
            federation.perform(bob, federation.task(bob))
        assert len(set(keys)) == 3, "each is another task for a trainer that has done the one before"
        assert federation.run_to_end(run.run_id).status is RunStatus.COMPLETED
        assert federation.metrics_lines(run.run_id) == lines


def test_a_run_that_waits_for_a_damaged_update_can_be_paused_resumed_and_stopped(folder: Path) -> None:
    with LocalFederation.small(folder / "damaged") as federation:
        run = collected(federation)
        blob = blobs_of(run, "bob")[0]
        federation.start_again()
        flip(federation.path_of(blob))
        federation.coordinator.work()
        coordinator = federation.coordinator
        coordinator.steer(run.run_id, PauseRun(now=True))
        run = coordinator.steer(run.run_id, ResumeRun())
        assert run.reason == UpdateDamaged(round_number=1, blobs={"bob": (blob.sha256,)}), "it still waits"
        federation.coordinator.tick()
        assert coordinator.get_run(run.run_id).reason == run.reason
        coordinator.steer(run.run_id, StopRun(reason="enough"))
        coordinator.tick()
        assert coordinator.get_run(run.run_id).status is RunStatus.STOPPED


@pytest.mark.parametrize("which", ["model", "prototypes"])
def test_a_damaged_global_blob_pauses_its_run_alone_and_a_restored_file_lets_it_go_on(
    folder: Path, damage: Callable[[Path], None], which: str
) -> None:
    lines = undisturbed(folder)
    with LocalFederation.small(folder / "damaged") as federation:
        run = collected(federation)
        for client in federation.clients.values():
            federation.coordinator.work()
            federation.perform(client, federation.task(client))
        run = federation.coordinator.get_run(run.run_id)
        assert run.round_number == 2
        blob = getattr(run, which)
        federation.start_again()
        whole = federation.path_of(blob).read_bytes()
        damage(federation.path_of(blob))
        federation.join()
        for name in ("ann", "bob"):
            client = federation.clients[name]
            task = federation.task(client)
            if task.kind is TaskKind.TRAIN:
                with pytest.raises(Exception, match=r"damaged|is gone"):
                    federation.fetch(client, task)
        run = federation.coordinator.get_run(run.run_id)
        assert run.status is RunStatus.PAUSED
        assert run.reason == BlobDamaged(round_number=2, role=blob.role, sha256=blob.sha256)
        assert blob.sha256[:12] in sentence_of(run.reason)
        federation.path_of(blob).write_bytes(whole)
        federation.coordinator.steer(run.run_id, ResumeRun())
        assert federation.run_to_end(run.run_id).status is RunStatus.COMPLETED
        assert federation.metrics_lines(run.run_id) == lines


def test_a_damaged_upload_is_no_refusal_of_its_client(folder: Path, damage: Callable[[Path], None]) -> None:
    """A whole upload that no update names yet, damaged while the aggregator is down."""
    lines = undisturbed(folder)
    with LocalFederation.small(folder / "damaged") as federation:
        federation.join()
        run = federation.create("fedplcc")
        federation.step(["ann"])
        bob = federation.clients["bob"]
        task, _update, blobs = federation.work(bob)
        federation.upload(bob, task, blobs)
        federation.start_again()
        for path in list((federation.folder / "incoming" / "bob").iterdir()):
            damage(path)
        federation.join()
        run = federation.run_to_end(run.run_id)
        assert run.status is RunStatus.COMPLETED
        assert federation.metrics_lines(run.run_id) == lines
        assert not federation.events(run.run_id, "update_refused")
        assert not run.rejections
