"""Composition root of the trainer: builds its parts, runs them until a signal, and returns the exit code."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import ExitStack
from types import FrameType

from fedplcc.shared.config.settings import EXIT_CONFIG as EXIT_CONFIG
from fedplcc.shared.config.settings import TrainerSettings, limit_threads
from fedplcc.shared.config.settings.variables import warn_of_unknown_variables
from fedplcc.shared.errors import BY_REASON, FedplccError, StoreUnavailable
from fedplcc.shared.identity.credentials import IDENTITY_FILE
from fedplcc.shared.methods import add_methods
from fedplcc.shared.process import disk, traces
from fedplcc.shared.process.allocator import keep_freed_memory
from fedplcc.shared.process.failpoints import arm_from_environment
from fedplcc.shared.process.log import bind, get_logger, set_up
from fedplcc.shared.process.loopback import is_loopback
from fedplcc.shared.process.metrics import new_registry, serve_metrics
from fedplcc.shared.process.resources import TRAINER_FILES, require
from fedplcc.shared.types import LogLevel
from fedplcc.shared.version import VERSION
from fedplcc.shared.wire.enrolling.renewal import Renewal
from fedplcc.shared.wire.serving.metrics_guard import MonitorGuard
from fedplcc.shared.wire.tls import ClientTls, require_identity
from fedplcc.trainer.audit_witness import AuditWitness
from fedplcc.trainer.instance import held_state_dir
from fedplcc.trainer.owner.approval.gate import Gate
from fedplcc.trainer.owner.approval.kept import PAGE, Kept
from fedplcc.trainer.owner.approval.page import serve_page
from fedplcc.trainer.owner.in_force import keep_policy
from fedplcc.trainer.owner.policy import NO_POLICY, Policy, read_policy
from fedplcc.trainer.owner.site_log import SiteLog

EXIT_OK, EXIT_REFUSED, EXIT_STORE, EXIT_INTERRUPTED = 0, 3, 4, 130
"""Exit codes: ended by SIGTERM or Ctrl-C; refused by the aggregator for good; the state directory cannot be used; ended at
once by a second signal. `EXIT_CONFIG`: settings or data are wrong, a port or the state directory is taken, or the process
has too few open files.
"""

STATES_FOLDER = "client-state"
"""Folder below the state directory: each client's finished update and client states."""

log = get_logger("fedplcc.trainer.app")


def run(settings: TrainerSettings) -> int:
    """Act for a client until SIGTERM or SIGINT; returns the exit code.

    A trainer that cannot reach its aggregator logs that and keeps trying. A signal ends it within one batch; a second signal
    ends it at once.
    """
    set_up(settings.log_level)
    disk.deny_others()
    warn_of_unknown_variables()
    arm_from_environment()
    keep_freed_memory()
    limit_threads(settings.threads)
    signals = _Signals()
    try:
        require(open_files=TRAINER_FILES, is_service=False)
        traces.set_up("trainer")
        policy = NO_POLICY if settings.policy is None else read_policy(settings.policy)
        add_methods(settings.allow_method)
        with held_state_dir(settings.state_dir) as token, bind(client_id=settings.client):
            keep_policy(settings.state_dir, settings.policy, policy)
            _serve(settings, policy, token, signals)
    except StoreUnavailable as error:
        log.error("cannot_start", reason=error.reason, detail=error.detail)
        return EXIT_STORE
    except FedplccError as error:
        log.error("cannot_go_on", reason=error.reason, detail=error.detail)
        return EXIT_CONFIG if error.code.http_status == 400 else EXIT_REFUSED
    return EXIT_OK


def _serve(settings: TrainerSettings, policy: Policy, token: str, signals: _Signals) -> None:
    # Before torch loads, which takes seconds: nobody should wonder whether anything happens.
    log.info("trainer_starting", version=VERSION, **settings.model_dump(mode="json"))
    # Imported here: torch reads its thread settings when it loads, and `--help` need not wait for it.
    from fedplcc.trainer.aggregator.connection import AggregatorConnection
    from fedplcc.trainer.aggregator.egress_gate import EgressGate
    from fedplcc.trainer.aggregator.task_stream import StreamEnd
    from fedplcc.trainer.health import serve_health
    from fedplcc.trainer.owner.consent import Consent
    from fedplcc.trainer.owner.egress.log import EgressLog
    from fedplcc.trainer.owner.refusals import least_budget
    from fedplcc.trainer.privacy.budget import PRIVACY_FOLDER, Budget
    from fedplcc.trainer.readings.gathering import Readings, none, process_readings
    from fedplcc.trainer.readings.gpu import DeviceReadings
    from fedplcc.trainer.readings.metrics import TrainerMetrics
    from fedplcc.trainer.task.client_state import ClientStates
    from fedplcc.trainer.task.hints import HINTS
    from fedplcc.trainer.task.runner import TaskRunner
    from fedplcc.trainer.task.site import ClientSite
    from fedplcc.trainer.worker import Worker

    registry = new_registry("trainer")
    metrics = TrainerMetrics(registry)
    epsilon, delta = least_budget(policy, settings.privacy_epsilon, settings.privacy_delta)
    keeps_to_itself = epsilon is not None or policy.privacy.claim == "site"
    egress = EgressLog(settings.state_dir, releases=lambda: budget.num_told())
    budget = Budget(settings.state_dir / PRIVACY_FOLDER, epsilon=epsilon, delta=delta, logged=egress.num_releases)
    try:
        budget.keep_limit()
        metrics.epsilon_spent.set(budget.spent_epsilon)
    except StoreUnavailable as error:
        log.error("privacy_budget_unreadable", detail=error.detail)  # runs with noise meet it; others go on
    site = ClientSite.at(
        settings.client,
        settings.domain,
        settings.data_spec,
        display_name=settings.display_name,
        device=settings.device,
        takes_turns=True,
        samples_per_class=settings.samples_per_class,
        fraction=settings.fraction,
        validation_per_class=settings.validation_per_class,
        evaluate_only=settings.evaluate_only,
        withhold_below=settings.withhold_below,
        model=settings.own_model,
        consent=Consent.of_owner(settings, policy),
        budget=budget,
        tells_counts=not keeps_to_itself,
        policy=policy,
    )
    states = ClientStates(
        settings.state_dir / STATES_FOLDER / settings.client, keeps_sent=True
    )  # a folder for each client
    _ = states.manifest  # before anything is asked for: a newer version's state keeps the trainer from starting
    kept = Kept(settings.state_dir)
    gate = Gate(kept, None if settings.policy is None else policy.approve)
    runner = TaskRunner(site, states, metrics=metrics, keeps_evaluated=True, gate=gate)
    renewal = _renewal_of(settings, lambda: connection.use_renewed_certificate())
    connection = AggregatorConnection(
        settings.aggregator,
        settings.client,
        token,
        metrics,
        tls=None if renewal is None else ClientTls(lambda: renewal.held),
        insecure=settings.insecure,
        http_proxy=settings.http_proxy or "",
        poll_hold_s=settings.poll_hold_s if settings.sync == "poll" else None,
        keepalive_s=settings.keepalive_s,
        egress=EgressGate(egress, budget.told_epsilon),
    )
    connection.saw_audit_head, connection.saw_release = AuditWitness(settings.state_dir).saw, budget.saw
    reasons = (*BY_REASON, *HINTS, *StreamEnd, "stream_ended")
    site_log = SiteLog(LogLevel.NONE if keeps_to_itself else policy.leaves.logs, reasons=reasons)
    with ExitStack() as served:
        served.enter_context(site_log)
        device = DeviceReadings(site.device)
        served.callback(device.close)
        readings = Readings(training=runner.readings, device=device.latest, process=process_readings)
        metrics.follow(readings)
        told = readings if policy.leaves.readings else none
        worker = Worker(runner, connection, metrics, readings=told, gate=gate, site_log=site_log)
        if settings.metrics_port is not None:
            guard = _metrics_guard(settings, renewal)
            scraped = serve_metrics(registry, settings.metrics_host, settings.metrics_port, guard)
            served.callback(scraped.close)
            log.info("metrics_served", host=settings.metrics_host, port=scraped.port)
        if settings.health_port is not None:
            checked = serve_health(lambda: worker.is_well, settings.health_port)
            served.callback(checked.close)
            log.info("health_served", port=checked.port)
        if settings.owner_port is not None:
            page = serve_page(kept, settings.owner_port)
            served.callback(page.close)
            log.info("owner_page_served", port=page.port, address_in=str(kept.folder / PAGE))
        if renewal is not None:
            metrics.certificates.follow(lambda: [renewal.held.span])
            renewal.start()
            served.callback(renewal.close)
        signals.end = worker.end
        worker.run()
    log.info("trainer_ended")


def _renewal_of(settings: TrainerSettings, on_renewed: Callable[[], None]) -> Renewal | None:
    """Return the client's certificate, which is renewed in time; None with --insecure."""
    if settings.insecure:
        return None
    require_identity(settings.state_dir)
    return Renewal(
        settings.state_dir,
        settings.aggregator,
        lambda _renewed: on_renewed(),
        http_proxy=settings.http_proxy or "",
    )


def _metrics_guard(settings: TrainerSettings, renewal: Renewal | None) -> MonitorGuard | None:
    """Return who may read /metrics; None where whoever reaches the port may: on loopback, and in plain text."""
    if renewal is None or is_loopback(settings.metrics_host):
        return None
    return MonitorGuard(settings.state_dir / IDENTITY_FILE, lambda: renewal.held.roots_pem)


class _Signals:
    """Handler of SIGTERM and SIGINT: the first one ends the trainer within one batch, the second one at once.

    During the start the first one ends it at once too.
    """

    def __init__(self) -> None:
        self.end: Callable[[], None] | None = None
        self._was_asked = False
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._was_asked:
            os._exit(EXIT_INTERRUPTED)
        self._was_asked = True
        if self.end is None:
            raise SystemExit(EXIT_OK)
        self.end()
