"""Every change of the coordinator's callers has its record in the audit, in the change's own transaction."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedplcc.aggregator.coordinator.service import Coordinator
from fedplcc.aggregator.identity.audit import Audit
from fedplcc.aggregator.store.blobs.blob_store import BlobStore
from fedplcc.shared.errors import FedplccError, NotFound, RunNotFound, StoreUnavailable
from fedplcc.shared.identity.audit_chain import EMPTY, head_of, verify
from fedplcc.shared.identity.principals import OWNER, current_principal
from fedplcc.shared.run_lists import LabelChange
from fedplcc.shared.steering import PauseRun, QuarantineClient, ReleaseClient, ResumeRun, StopRun
from fedplcc.shared.types import ClientProblem, Heartbeat
from tests.support.failpoints import hooked
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient, a_document


class Audited(LocalFederation):
    """A federation whose aggregator keeps an audit."""

    audit: Audit

    def _start(self) -> None:
        super()._start()
        self.audit = Audit(self.store, clock=self.clock, steady_clock=self.clock)
        self.coordinator = Coordinator(
            self.store,
            BlobStore(self.folder),
            self.metrics,
            self.limits,
            self.keep,
            audit=self.audit,
            wall_clock=self.clock,
            monotonic_clock=self.clock,
        )

    @property
    def records(self) -> list[tuple[str, str, str]]:
        entries = self.store.list_audit()
        assert verify(entries).damages == ()
        return [(entry.method, entry.target, entry.request_id) for entry in entries]


@pytest.fixture
def audited(tmp_path: Path) -> Audited:
    return Audited(tmp_path, map(NumpyClient, ("ann", "bob")))


def test_every_change_is_recorded_once(audited: Audited) -> None:
    with audited:
        audited.join()
        audited.join()
        steer = audited.coordinator
        run = steer.create_run("r1", a_document()).run_id
        steer.create_run("r1", a_document())
        steer.steer(run, PauseRun(now=True), request_id="r2")
        steer.steer(run, PauseRun(now=True), request_id="r2")
        steer.steer(run, ResumeRun())
        steer.steer(run, QuarantineClient("bob", reason="odd"), request_id="r3")
        steer.steer(run, ReleaseClient("bob"))
        steer.steer(run, StopRun())
        audited.run_to_end(run)
        steer.labels.change(run, LabelChange(tags=("a",)), request_id="r4")
        steer.labels.change(run, LabelChange(tags=("a",)))
        steer.delete_run(run)
        steer.forget_client("bob")
        for refused in (lambda: steer.delete_run(run), lambda: steer.forget_client("bob")):
            with pytest.raises(NotFound):
                refused()
        assert audited.records == [
            ("Join", "ann", ""),
            ("Join", "bob", ""),
            ("CreateRun", run, "r1"),
            ("PauseRun", run, "r2"),
            ("ResumeRun", run, ""),
            ("QuarantineClient", f"{run}/bob", "r3"),
            ("ReleaseClient", f"{run}/bob", ""),
            ("StopRun", run, ""),
            ("UpdateRun", run, "r4"),
            ("DeleteRun", run, ""),
            ("ForgetClient", "bob", ""),
        ]
        assert {entry.caller for entry in audited.store.list_audit()} == {"anyone"}


def test_the_caller_of_the_call_is_recorded(audited: Audited) -> None:
    with audited:
        token = current_principal.set(OWNER)
        run = audited.create()
        current_principal.reset(token)
        audited.coordinator.steer(run.run_id, StopRun())
        assert [entry.caller for entry in audited.store.list_audit()] == ["owner", "anyone"]


def test_what_is_refused_or_not_written_leaves_no_record(audited: Audited) -> None:
    with audited:
        with pytest.raises(RunNotFound):
            audited.coordinator.steer("none", PauseRun())
        run = audited.create()
        with pytest.raises(FedplccError):
            audited.coordinator.steer(run.run_id, ReleaseClient("nobody"))
        assert [method for method, _, _ in audited.records] == ["CreateRun"]


class Crash(BaseException):
    """The process ends here."""


@pytest.mark.parametrize(("moment", "is_there"), [("store.commit.before", False), ("store.commit.after", True)])
def test_a_crash_leaves_the_change_and_its_record_or_neither(audited: Audited, moment: str, is_there: bool) -> None:
    def crash(name: str) -> None:
        if name == moment:
            raise Crash

    with audited:
        audited.join()
        run = audited.create(run={"rounds": 1}).run_id
        before = audited.records
        with hooked(crash), pytest.raises(Crash):
            audited.coordinator.steer(run, PauseRun(now=True), request_id="r")
        audited.start_again()
        assert audited.records == before + ([("PauseRun", run, "r")] if is_there else [])
        assert (audited.store.find_control_request("r") is not None) is is_there


def test_a_refusal_that_a_site_reports_is_recorded(audited: Audited) -> None:
    with audited:
        audited.join()
        run = audited.create().run_id
        ann = audited.clients["ann"]
        for reason in ("CODE_NOT_ALLOWED", "WEIGHTS_MISSING", "INVALID_DATA"):
            problem = ClientProblem(reason=reason, detail="no", is_fatal=True)
            audited.coordinator.heartbeat(Heartbeat(client_id="ann", run_id=run, round=0, problem=problem), ann.token)
        audited.audit.write()
        refused = [entry for entry in audited.store.list_audit() if entry.outcome == "refused"]
        assert [(entry.method, entry.target, entry.reason) for entry in refused] == [
            ("Heartbeat", f"{run}/ann", "CODE_NOT_ALLOWED"),
            ("Heartbeat", f"{run}/ann", "WEIGHTS_MISSING"),
        ]


def test_a_refusal_that_a_client_outside_the_roster_reports_names_no_run(audited: Audited) -> None:
    with audited:
        audited.join()
        run, eve = audited.create().run_id, NumpyClient("eve")
        audited.coordinator.join(eve.record, eve.token)
        audited.heartbeat(eve, run_id=run, problem=ClientProblem(reason="CODE_NOT_ALLOWED", detail="no", is_fatal=True))
        audited.audit.write()
        assert [entry.target for entry in audited.store.list_audit() if entry.outcome == "refused"] == ["/eve"]


def test_the_answer_to_join_has_the_head(audited: Audited) -> None:
    with audited:
        ann = audited.clients["ann"]
        joined = audited.coordinator.join(ann.record, ann.token)
        assert joined.audit_head == head_of(audited.store.list_audit()[-1])
    with LocalFederation.small(audited.folder / "other") as plain:
        assert plain.coordinator.join(ann.record, ann.token).audit_head is None


def test_the_head_goes_into_the_log_at_the_start_and_hourly(audited: Audited, caplog: pytest.LogCaptureFixture) -> None:
    def lines() -> list[int]:
        return [vars(each)["msg"]["number"] for each in caplog.records if vars(each)["msg"]["event"] == "audit_head"]

    caplog.set_level("INFO")
    with audited:
        audited.audit.write()
        assert audited.audit.head() == EMPTY
        audited.join()
        for passed in (0.0, 3599.0, 1.0, 3600.0):
            audited.clock.now += passed
            audited.audit.write()
        assert lines() == [2, 2]
        audited.audit.close()
        assert lines() == [2, 2, 2]


def test_texts_from_outside_are_bounded_and_printable(audited: Audited) -> None:
    with audited:
        audited.audit.refused(OWNER, "GetRun", "r\0\n\ud800" + "x" * 500, "KEY_INVALID", "é")
        audited.audit.close()
        (entry,) = audited.store.list_audit()
        assert entry.target == ("r???" + "x" * 500)[:128]
        assert entry.request_id == "é"


def test_refusals_wait_while_the_database_is_away(audited: Audited, monkeypatch: pytest.MonkeyPatch) -> None:
    with audited:
        audited.audit.refused(OWNER, "GetRun", "", "KEY_INVALID")

        def away() -> None:
            raise StoreUnavailable("away")

        with monkeypatch.context() as patched:
            patched.setattr(audited.store, "transaction", away)
            with pytest.raises(StoreUnavailable):
                audited.audit.write()
        audited.audit.write()
        assert [entry.reason for entry in audited.store.list_audit()] == ["KEY_INVALID"]
