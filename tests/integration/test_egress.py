"""What real trainers send is in their logs of what left, also where they die between line, message and answer."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedplcc.shared.process.failpoints import ARMED_FILE, VARIABLE
from fedplcc.trainer.owner.egress.log import LOG_FILE, Line, lines_in
from tests.integration.test_recovery import RUN_S, Rest
from tests.support.federation import tiny_federation
from tests.support.federation.processes import Federation, eventually
from tests.support.federation.recording_proxy import Received, RecordingProxy

VICTIM, OTHER = tiny_federation.CLIENTS
DEATHS = (
    "trainer.egress.append.after",  # the line may be lost
    "trainer.egress.fsync.after",  # the line is there, nothing was sent
    "trainer.rpc.GetUploadStatus.before",
    "trainer.rpc.CommitUpdate.before",
    "trainer.rpc.CommitUpdate.after",  # answered, and the answer not seen
    "trainer.rpc.ReportEvaluation.before",
)
LISTED = ("Join", "CommitUpdate", "ReportEvaluation")


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Federation]:
    with Federation(tmp_path, tls=False) as federation:
        # Models are uploaded, prototypes come with their commits.
        federation.start_aggregator("--heartbeat-interval-s", "0.3", "--max-inline-bytes", "20000")
        yield federation


@pytest.fixture
def proxy(federation: Federation) -> Iterator[RecordingProxy]:
    with RecordingProxy(federation.address) as proxy:
        yield proxy


def kept(folder: Path) -> list[Line]:
    found = list(lines_in(folder))
    assert None not in found
    return [line for line in found if line is not None]


def sent(proxy: RecordingProxy, client: str) -> set[tuple[str, int]]:
    """SHA-256 and size of what this client sent that has a line each."""
    whole = {(each.sha256, len(each.data)) for each in proxy.of(client) if each.method in LISTED}
    return whole | proxy.uploaded(client)


@pytest.mark.slow
def test_what_left_is_in_the_log_whenever_a_trainer_dies_and_the_run_ends_in_its_bytes(
    federation: Federation, proxy: RecordingProxy, tmp_path: Path
) -> None:
    tiny_federation.write_data(tmp_path)
    rest, order = Rest(federation), tmp_path / "failpoints" / ARMED_FILE
    order.parent.mkdir()
    for name in tiny_federation.CLIENTS:
        data, flags = f"npz:{tmp_path / name}.npz", ("--aggregator", proxy.address)
        process = federation.trainer(f"trainer-{name}", name, data, *flags, state_dir=tmp_path / f"trainer-{name}")
        process.environment = {VARIABLE: str(order.parent)} if name == VICTIM else {}
        process.start()
    federation.start_gateway()
    victim = federation.processes[f"trainer-{VICTIM}"]
    eventually(lambda: len({each.sender for each in proxy.received}) == 2, "both join", RUN_S)
    values = tiny_federation.document(tmp_path)
    for number, point in enumerate(DEATHS):
        order.write_text(f"{point} 1")
        if not number:
            run_id = rest.start(values)
        eventually(lambda: not victim.is_running, f"it dies at {point}", RUN_S)
        assert victim.exit_code == -signal.SIGKILL
        order.unlink()
        victim.start()

    def kill_at_first_commit(received: Received) -> None:
        if (received.method, received.sender) == ("CommitUpdate", VICTIM):
            proxy.arrived = lambda _received: None
            victim.kill()  # sent, and not answered

    proxy.arrived = kill_at_first_commit
    eventually(lambda: not victim.is_running, "it dies before the answer", RUN_S)
    victim.start()
    rest.wait(run_id, "completed")
    assert rest.metrics(run_id) == tiny_federation.simulated(tmp_path / "reference", values)

    for name in tiny_federation.CLIENTS:
        lines = kept(tmp_path / f"trainer-{name}")
        listed = {(line.sha256, line.bytes) for line in lines if line.what != "readings"}
        assert sent(proxy, name) <= listed
        assert len(listed - sent(proxy, name)) <= (len(DEATHS) if name == VICTIM else 0), f"{name}: lines of nothing"
        assert {line.what for line in lines} == {"join", "readings", "upload", "commit", "report"}
        assert {line.claim for line in lines if line.run} == {"none"}
    beats = {each.sha256 for each in proxy.of(OTHER) if each.method == "Heartbeat"}
    told = {line.sha256 for line in lines if line.what == "readings"}
    assert name == OTHER
    assert told < beats, "not a line for each"
    assert (tmp_path / f"trainer-{OTHER}" / LOG_FILE).stat().st_mode & 0o077 == 0
