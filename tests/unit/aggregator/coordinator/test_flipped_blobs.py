"""Any stored blob, flipped while the aggregator runs: the undisturbed result or a named reason, never other bytes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from fedplcc.aggregator.store.blobs.hashed_reading import HashedBlob
from fedplcc.shared.errors import PayloadCorrupt
from fedplcc.shared.reasons import BlobDamaged
from fedplcc.shared.steering import ResumeRun
from fedplcc.shared.tensors import blob_ref, sha256_hex, to_bytes
from fedplcc.shared.types import MODEL, Run, RunStatus
from fedplcc.state.backup import make_backup
from fedplcc.state.replay import replay
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient

SENT_AGAIN, NAMED = "its client is asked again", "the run waits and names it"
METHODS = {"fedplcc": {SENT_AGAIN}, "feddyn": {SENT_AGAIN, NAMED}}
"""What is met: of FedPLCC's round nothing but updates is read again; FedDyn has slots and another start."""
MOST_STEPS = 30


def blobs_below(state: Path) -> list[Path]:
    return sorted(path for path in (state / "blobs").glob("??/*") if len(path.name) == 64)


def flip(path: Path) -> bytes:
    """Flip the last bit of a file; returns what was in it."""
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    return data


class CheckedFederation(LocalFederation):
    """Its clients hash what they get, as trainers do; damaged bytes they ask for again."""

    def fetched(self, client, task):  # type: ignore[no-untyped-def]
        found = super().fetched(client, task)
        for blob in task.payload.blobs:
            if sha256_hex(found[blob.role]) != blob.sha256:
                self.coordinator.transfers.sent_whole(client.token, blob.sha256)
                found = super().fetched(client, task)
                assert sha256_hex(found[blob.role]) == blob.sha256
        return found


def second_round(folder: Path, method: str) -> tuple[CheckedFederation, Run]:
    """A running aggregator that has both updates of the second of two rounds."""
    federation = CheckedFederation.small(folder)
    federation.join()
    run = federation.create(method, run={"rounds": 2})
    for _ in range(MOST_STEPS):
        run = federation.coordinator.get_run(run.run_id)
        record = run.current_round
        if record is not None and record.number == 2 and len(record.updates) == 2:
            return federation, run
        for client in federation.clients.values():
            federation.perform(client, federation.task(client))
        run = federation.coordinator.get_run(run.run_id)
        record = run.current_round
        if record is not None and record.number == 2 and len(record.updates) == 2:
            return federation, run
        while federation.coordinator.work():
            pass
    raise AssertionError("the second round did not come")


def on_to_its_end(federation: CheckedFederation, run: Run) -> Run:
    """Go on as far as the run goes; damage refuses a call of a client, which comes again."""
    for _ in range(MOST_STEPS):
        with suppress(PayloadCorrupt):
            if not federation.step():
                break
    return federation.coordinator.get_run(run.run_id)


def result(federation: CheckedFederation, run: Run) -> tuple[object, ...]:
    ended = federation.coordinator.get_run(run.run_id)
    return ended.status, ended.model, ended.prototypes, federation.metrics_lines(run.run_id)


def met_where_each_blob_flips(folder: Path, method: str) -> tuple[int, set[str]]:
    """Flip each blob of a running round in turn; returns their number, and what was met before the undisturbed bytes."""
    federation, run = second_round(folder / "undisturbed", method)
    with federation:
        names = [path.name for path in blobs_below(federation.folder)]
        on_to_its_end(federation, run)
        right = result(federation, run)
        assert right[0] is RunStatus.COMPLETED
    met = set()
    for name in names:
        federation, run = second_round(folder / name[:12], method)
        with federation:
            path = federation.folder / "blobs" / name[:2] / name
            data = flip(path)
            found = on_to_its_end(federation, run)
            if found.status is not RunStatus.COMPLETED:
                assert isinstance(found.reason, BlobDamaged)
                assert found.reason.sha256 == name
                path.write_bytes(data)
                federation.coordinator.steer(run.run_id, ResumeRun())
                on_to_its_end(federation, run)
                met.add(NAMED)
            elif federation.events(run.run_id, "update_damaged"):
                met.add(SENT_AGAIN)
            assert result(federation, run) == right, name
    return len(names), met


@pytest.mark.parametrize("method", METHODS)
def test_whichever_blob_flips_in_a_running_round_the_run_has_its_bytes_or_says_which(
    folder: Path, method: str, covered: Callable[[str], None]
) -> None:
    num_blobs, met = met_where_each_blob_flips(folder, method)
    covered(f"{num_blobs} blobs of a running round of {method}")
    assert met == METHODS[method]


def test_a_fold_that_takes_what_it_reads_is_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HashedBlob, "finish", lambda _blob: None)
    with pytest.raises(AssertionError):
        met_where_each_blob_flips(folder, "fedplcc")


def ended_or_damaged(call: Callable[[], object]) -> object:
    """What a call gives; None where it finds damage."""
    with suppress(PayloadCorrupt):
        return call()
    return None


@pytest.fixture
def ended(folder: Path) -> tuple[Path, str]:
    """The state of an aggregator and its run of FedPLCC that has ended."""
    with LocalFederation.small(folder / "state") as federation:
        return federation.folder, federation.whole_run().run_id


def test_whichever_blob_flips_a_replay_computes_the_recorded_bytes_or_refuses(ended: tuple[Path, str]) -> None:
    state, run_id = ended
    assert replay(state, run_id, 2).is_equal
    refused = 0
    for path in blobs_below(state):
        data = flip(path)
        found = ended_or_damaged(lambda: replay(state, run_id, 2).is_equal)
        assert found in (True, None)
        refused += found is None
        path.write_bytes(data)
    assert refused >= 3, "the model that the round started from, and a model and prototypes of each client"


def test_whichever_blob_flips_no_backup_is_made(ended: tuple[Path, str], tmp_path: Path) -> None:
    state, _run_id = ended
    named = make_backup(state, tmp_path / "whole").num_blobs
    refused = 0
    for number, path in enumerate(blobs_below(state)):
        data = flip(path)
        refused += ended_or_damaged(lambda number=number: make_backup(state, tmp_path / str(number))) is None  # type: ignore[misc]
        path.write_bytes(data)
    assert refused == named


@pytest.mark.parametrize("when", ["before the run", "after it was made"])
def test_no_run_starts_from_an_initial_model_that_flipped(folder: Path, when: str) -> None:
    data = to_bytes(NumpyClient("ann", size=3).first_model(7))
    blob = blob_ref(MODEL, data)
    with CheckedFederation.small(folder / "state") as federation:
        federation.join()
        receiver = federation.coordinator.initial_models.begin_upload(blob, "mine")
        assert receiver is not None
        with closing(receiver):
            receiver.write(data)
            receiver.finish()
        held = federation.folder / "initial" / blob.sha256

        def begin() -> Run:
            return federation.create("fedplcc", run={"initial_model": f"sha256:{blob.sha256}"})

        if when == "before the run":
            flip(held)
            run = begin()
        else:
            run = begin()
            flip(held)
        found = on_to_its_end(federation, run)
        assert found.reason == BlobDamaged(round_number=0, role=MODEL, sha256=blob.sha256)
        held.write_bytes(data)  # the run's blob is another name of the same file
        federation.coordinator.steer(run.run_id, ResumeRun())
        assert on_to_its_end(federation, run).status is RunStatus.COMPLETED
