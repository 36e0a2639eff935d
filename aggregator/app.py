"""Composition root of the aggregator, and the life of its process."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING
from urllib.parse import urlsplit

from fedplcc.aggregator.admin_socket import AdminSocket
from fedplcc.aggregator.aggregation_pool import AggregationPool
from fedplcc.aggregator.coordinator.service import Coordinator
from fedplcc.aggregator.database_watch import DatabaseWatch
from fedplcc.aggregator.garbage.rules import Keep
from fedplcc.aggregator.garbage.thread import GarbageCollector
from fedplcc.aggregator.identity.admissions import Admissions
from fedplcc.aggregator.identity.audit import Audit
from fedplcc.aggregator.identity.authority import Authority
from fedplcc.aggregator.identity.certificate_ends import CertificateEnds
from fedplcc.aggregator.identity.gateway_invitation import GATEWAY_FILE, GatewayInvitation
from fedplcc.aggregator.identity.keys import Keys
from fedplcc.aggregator.ledger.limits import Limits
from fedplcc.aggregator.metrics import AggregatorMetrics
from fedplcc.aggregator.ports import Ports, Service
from fedplcc.aggregator.servicer.admin_service import AdminServicer
from fedplcc.aggregator.servicer.audit_calls import AuditServicer, into_audit
from fedplcc.aggregator.servicer.calls import control_call
from fedplcc.aggregator.servicer.enrol_service import EnrolServicer
from fedplcc.aggregator.servicer.round_service import RoundServicer
from fedplcc.aggregator.servicer.run_service import RunServicer
from fedplcc.aggregator.servicer.wakeups import Wakeups
from fedplcc.aggregator.store.base import Store, Transaction
from fedplcc.aggregator.store.blobs.blob_store import BlobStore
from fedplcc.aggregator.store.blobs.reserve import make_room_to_start
from fedplcc.aggregator.store.opening import open_store
from fedplcc.shared.config.settings import EXIT_CONFIG as EXIT_CONFIG
from fedplcc.shared.config.settings import AggregatorSettings
from fedplcc.shared.config.settings.variables import warn_of_unknown_variables
from fedplcc.shared.errors import FedplccError, InvalidConfig, StoreUnavailable
from fedplcc.shared.gen.fedplcc.v1 import (
    admin_service_pb2,
    admin_service_pb2_grpc,
    enrol_service_pb2,
    enrol_service_pb2_grpc,
    round_service_pb2,
    round_service_pb2_grpc,
    run_service_pb2,
    run_service_pb2_grpc,
)
from fedplcc.shared.identity.names import Role
from fedplcc.shared.identity.principals import ITSELF, current_principal
from fedplcc.shared.methods import add_methods
from fedplcc.shared.process import disk, traces
from fedplcc.shared.process.allocator import keep_freed_memory
from fedplcc.shared.process.certificate_metrics import CertificateSpan
from fedplcc.shared.process.disk import why_unusable
from fedplcc.shared.process.failpoints import arm_from_environment
from fedplcc.shared.process.log import get_logger, set_up
from fedplcc.shared.process.loopback import is_loopback
from fedplcc.shared.process.metrics import new_registry, serve_metrics
from fedplcc.shared.process.resources import SERVICE_FILES, remedy_for, require
from fedplcc.shared.version import VERSION
from fedplcc.shared.wire.addresses import join_address
from fedplcc.shared.wire.serving.caller import Callers, Certificates
from fedplcc.shared.wire.serving.metrics_guard import MonitorGuard

if TYPE_CHECKING:
    from fedplcc.aggregator.identity.sign_on.sign_ons import SignOns

log = get_logger("fedplcc.aggregator.app")

ENDPOINT_FILE = "endpoint.json"
"""File in the state directory while the aggregator serves: ports and process id, for scripts that use port 0."""
EXIT_OK, EXIT_STORE = 0, 4
"""Exit codes: ended by a signal; unusable state directory. `EXIT_CONFIG`: wrong settings, a port is taken, or the process
has too few open files or too little memory."""

SWITCH_S = 0.001
"""Longest time for which a thread computes before the event loop, which answers heartbeats, gets its turn."""
OTHER_THREADS = 4
"""Threads for what is no call of the coordinator: large requests are decoded there."""
SHUTDOWN_GRACE_S = 2.0
"""Seconds that running calls get after a signal to end."""
HERE = "127.0.0.1"
EVERY_ADDRESS = ("0.0.0.0", "::")  # nosec B104 # compared, not bound
"""Hosts of an aggregator that listens at all addresses of its machine; the gateway beside it dials loopback."""
GATEWAY_LOOK_S = 5.0
"""Time between two looks whether the federation has a gateway, which certificates end, and how many invitations are open."""


def run(settings: AggregatorSettings) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code. A second process on the same state directory is refused."""
    set_up(settings.log_level)
    disk.deny_others()
    warn_of_unknown_variables()
    arm_from_environment()
    keep_freed_memory()
    try:
        require(open_files=SERVICE_FILES)
        traces.set_up("aggregator")
        add_methods(settings.allow_method, needs_no_torch=True)
        with _locked(settings.state_dir):
            _make_room(settings.state_dir)
            return asyncio.run(_serve(settings))
    except InvalidConfig as error:
        log.error("cannot_start", detail=error.detail)
        return EXIT_CONFIG
    except FedplccError as error:
        log.error("cannot_start", detail=error.detail)
        return EXIT_STORE


async def _serve(settings: AggregatorSettings) -> int:
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(OTHER_THREADS, "other"))
    sys.setswitchinterval(SWITCH_S)
    ending = asyncio.Event()
    lost: list[str] = []

    def on_lost(why: str) -> None:
        log.error("database_lost", detail=why)
        lost.append(why)
        loop.call_soon_threadsafe(ending.set)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ending.set)

    registry = new_registry("aggregator")
    metrics = AggregatorMetrics(registry, max_clients=settings.client_metrics)
    limits = Limits(
        heartbeat_interval_s=settings.heartbeat_interval_s,
        lease_heartbeats=settings.lease_heartbeats,
        max_chunk_bytes=settings.max_chunk_bytes,
        max_blob_bytes=settings.max_blob_bytes,
        max_inline_bytes=settings.max_inline_bytes,
        fold_block_elements=settings.fold_block_elements,
        max_open_runs=settings.max_open_runs,
        max_open_runs_per_key=settings.max_open_runs_per_key,
        pending_days=settings.pending_days,
    )
    url = None if settings.database_url is None else settings.database_url.get_secret_value()
    store = await asyncio.to_thread(open_store, settings.state_dir, url, on_lost=on_lost)
    keep = Keep(
        models=settings.keep_models,
        prototypes=settings.keep_prototypes,
        updates=settings.keep_updates,
        unused_days=settings.keep_unused_days,
    )
    audit = Audit(store, counted=metrics.members.refused)
    make = partial(Coordinator, store, BlobStore(settings.state_dir), metrics, limits, keep, audit=audit)
    coordinator = await asyncio.to_thread(make)
    wakeups = Wakeups(loop)
    coordinator.subscribe(wakeups.notify)
    membership = await asyncio.to_thread(_membership, settings, store, coordinator, audit)
    if membership is not None:
        metrics.members.certificates.follow(partial(_shown_certificates, membership, metrics))
    ports = _ports(settings, metrics, membership, audit)
    ports.add(
        (
            Service(
                round_service_pb2_grpc.add_RoundServiceServicer_to_server,
                RoundServicer(coordinator, wakeups, lease_check_s=limits.lease_s, idle_s=settings.idle_s),
                round_service_pb2.DESCRIPTOR.services_by_name["RoundService"],
            ),
            Service(
                run_service_pb2_grpc.add_RunServiceServicer_to_server,
                RunServicer(coordinator, wakeups, idle_s=settings.idle_s),
                run_service_pb2.DESCRIPTOR.services_by_name["RunService"],
            ),
        )
    )
    scraped = None
    try:
        await asyncio.to_thread(coordinator.space.look)  # the reserve is taken before others can fill the disk
        await ports.start()
        if membership is not None:
            await membership.socket.start(membership.callers, metrics.calls)
        if settings.metrics_port is not None:
            guard = _metrics_guard(settings, membership, audit)
            scraped = serve_metrics(registry, settings.metrics_host, settings.metrics_port, guard)
        metrics_port = scraped.port if scraped is not None else None
        admin_socket = None if membership is None else membership.socket.path
        invitation = None if membership is None else _gateway_invitation(settings, membership, ports)
        # Who sees the file below, or a command that answers, finds the gateway's invitation there.
        await _look(invitation)
        _write_endpoint(settings, ports, metrics_port, admin_socket)
        where = {
            "host": settings.host,
            "port": ports.port,
            "enrol_port": ports.enrol_port,
            "metrics_port": metrics_port,
            "database": store.database.name,
        }
        log.info("aggregator_ready", **where, version=VERSION)
        aggregations = AggregationPool(coordinator)
        aggregations.start()
        collector = GarbageCollector(coordinator.garbage_collection, coordinator.subscribe)
        collector.start()
        inviting = asyncio.create_task(_look_after_members(invitation, membership, metrics))
        watching = asyncio.create_task(DatabaseWatch(store.audit_head, ports.report).run())
        signing_on = asyncio.create_task(_look_after_people(membership))
        ticking = asyncio.create_task(_tick(coordinator, membership, audit, min(1.0, limits.heartbeat_interval_s)))
        await ending.wait()
        log.info("aggregator_ending")
        ticking.cancel()
        watching.cancel()
        inviting.cancel()
        signing_on.cancel()
        # Streams end with a reason before the server stops; otherwise they would hold it for the whole grace period.
        await ports.announce_stop()
        wakeups.close()
        await ports.stop(SHUTDOWN_GRACE_S)
        if membership is not None:
            await membership.socket.stop(SHUTDOWN_GRACE_S)
        await asyncio.to_thread(aggregations.stop, SHUTDOWN_GRACE_S)
        await asyncio.to_thread(collector.stop)
        await asyncio.to_thread(_close, audit)
    except FedplccError:  # not everything could start: what did ends before the loop does
        await ports.stop(0)
        if membership is not None:
            await membership.socket.stop(0)
        raise
    finally:
        disk.remove(settings.state_dir / ENDPOINT_FILE, "endpoint")
        if scraped is not None:
            scraped.close()
        store.close()
    return EXIT_STORE if lost else EXIT_OK


@dataclass(frozen=True, slots=True)
class _Membership:
    """Who belongs to the federation."""

    authority: Authority
    admissions: Admissions
    ends: CertificateEnds
    keys: Keys
    callers: Callers
    sign_ons: SignOns | None
    admin: AdminServicer
    socket: AdminSocket


def _membership(
    settings: AggregatorSettings, store: Store, coordinator: Coordinator, audit: Audit
) -> _Membership | None:
    """Open the federation's authority; None where plain text is served."""
    if settings.insecure:
        if not is_loopback(settings.host):
            log.warning("serves_plain_text", host=settings.host, detail="anyone who reaches the port may call anything")
        return None
    life_s = settings.certificate_valid_s
    authority = Authority.open(settings.state_dir, own_s=life_s)

    def record(transaction: Transaction, method: str, target: str) -> None:
        audit.change(method, target)(transaction)

    admissions, keys = Admissions(store, authority, certificate_s=life_s, record=record), Keys(store, record=record)
    certificates = Certificates(lambda: authority.roots_pem, admissions.standing)
    callers = Callers(certificates, keys, calls_per_s=settings.calls_per_s, refused=into_audit(audit))

    def end_lease(role: Role, name: str) -> None:
        if role is Role.CLIENT:
            coordinator.leases.end(name)

    ends = CertificateEnds(admissions.list_recoverable())
    admissions.on_issued(ends.issued)
    admissions.on_revoked(ends.revoked)
    admissions.on_holder_ended(end_lease)
    admissions.on_revoked(callers.look_again)
    keys.on_revoked(callers.look_again)
    sign_ons = _sign_ons(settings, keys)
    admin = AdminServicer(
        admissions,
        lambda: authority.enrolment_sha256,
        keys,
        authority.federation,
        lambda: authority.roots_pem,
        audit,
        sign_ons,
    )
    socket = AdminSocket(settings.state_dir, admin_service_pb2_grpc.add_AdminServiceServicer_to_server, admin)
    return _Membership(authority, admissions, ends, keys, callers, sign_ons, admin, socket)


def _sign_ons(settings: AggregatorSettings, keys: Keys) -> SignOns | None:
    """Return the use cases of single sign-on; None where no provider is set."""
    if settings.sso_issuer is None:
        return None
    try:
        from fedplcc.aggregator.identity.sign_on.provider import Provider, secret_in
        from fedplcc.aggregator.identity.sign_on.rules import Rules
        from fedplcc.aggregator.identity.sign_on.sign_ons import SignOns
    except ModuleNotFoundError as error:
        raise InvalidConfig(f"sso_issuer needs the package {error.name}: pip install 'fedplcc[sso]'") from error
    provider = Provider(settings.sso_issuer, settings.sso_client_id, secret_in(settings.sso_secret_file))
    name = settings.sso_name or urlsplit(settings.sso_issuer).hostname or ""
    return SignOns(provider, Rules.of(settings), keys, name=name, scopes=settings.sso_scopes)


async def _look_after_people(membership: _Membership | None) -> None:
    if membership is not None and membership.sign_ons is not None:
        await membership.sign_ons.run()


def _ports(
    settings: AggregatorSettings, metrics: AggregatorMetrics, membership: _Membership | None, audit: Audit
) -> Ports:
    if membership is None:
        ports = Ports(settings, metrics.calls)
        ports.add([_administration(AuditServicer(audit))])
        return ports
    authority, admissions = membership.authority, membership.admissions
    ports = Ports(
        settings,
        metrics.calls,
        callers=membership.callers,
        server_credentials=authority.server_credentials,
        enrolment_credentials=authority.enrolment_credentials,
        roots_pem=lambda: authority.roots_pem,
    )
    ports.add([_administration(membership.admin)])
    ports.add_enrolment(
        Service(
            enrol_service_pb2_grpc.add_EnrolServiceServicer_to_server,
            EnrolServicer(admissions, authority.federation, port=lambda: ports.port),
            enrol_service_pb2.DESCRIPTOR.services_by_name["EnrolService"],
        )
    )
    return ports


def _administration(servicer: AdminServicer | AuditServicer) -> Service:
    register = admin_service_pb2_grpc.add_AdminServiceServicer_to_server
    return Service(register, servicer, admin_service_pb2.DESCRIPTOR.services_by_name["AdminService"])


def _shown_certificates(membership: _Membership, metrics: AggregatorMetrics) -> list[CertificateSpan]:
    return [membership.authority.own.span, *membership.ends.spans(metrics.clients.series.shown())]


def _metrics_guard(settings: AggregatorSettings, membership: _Membership | None, audit: Audit) -> MonitorGuard | None:
    """Return who may read /metrics; None where whoever reaches the port may: on loopback, and in plain text."""
    if membership is None or is_loopback(settings.metrics_host):
        return None
    authority = membership.authority
    return MonitorGuard(
        authority.own_file,
        lambda: authority.roots_pem,
        standing=membership.admissions.standing,
        refused=lambda caller, reason: audit.refused(caller, "/metrics", "", reason),
    )


def _gateway_invitation(settings: AggregatorSettings, membership: _Membership, ports: Ports) -> GatewayInvitation:
    host = HERE if settings.host in EVERY_ADDRESS else settings.host
    return GatewayInvitation(
        settings.gateway_join_file or settings.state_dir / GATEWAY_FILE,
        membership.admissions,
        lambda: join_address(host, ports.enrol_port or 0),
        lambda: membership.authority.enrolment_sha256,
        time.time,
    )


async def _look_after_members(
    invitation: GatewayInvitation | None, membership: _Membership | None, metrics: AggregatorMetrics
) -> None:
    """Keep an invitation in its file while the federation has no gateway, and look at what ends or is open."""
    while membership is not None:
        await _look(invitation)
        try:
            membership.ends.look()
            metrics.members.invited(await control_call(membership.admissions.open_invitations))
        except StoreUnavailable as error:
            log.error("store_unavailable", detail=error.detail)
        except Exception:
            log.exception("members_crashed")
        await asyncio.sleep(GATEWAY_LOOK_S)


async def _look(invitation: GatewayInvitation | None) -> None:
    if invitation is None:
        return
    caller = current_principal.set(ITSELF)
    try:
        await control_call(invitation.look)
    except StoreUnavailable as error:
        log.error("store_unavailable", detail=error.detail)
    except Exception:
        log.exception("invitation_crashed")
    finally:
        current_principal.reset(caller)


async def _tick(coordinator: Coordinator, membership: _Membership | None, audit: Audit, interval_s: float) -> None:
    while True:
        await asyncio.sleep(interval_s)
        try:
            if membership is not None and await control_call(membership.authority.renew_if_due):
                log.info("own_certificate_renewed", ends_at=membership.authority.not_after)
            await control_call(coordinator.space.look)
            await control_call(coordinator.tick)
            await control_call(audit.write)
        except StoreUnavailable as error:
            log.error("store_unavailable", detail=error.detail)
        except Exception:
            log.exception("tick_crashed")


def _close(audit: Audit) -> None:
    try:
        audit.close()
    except StoreUnavailable as error:
        log.error("store_unavailable", detail=error.detail)


def _locked(folder: Path) -> IO[str]:
    """Lock the state directory for this process while the returned file is open."""
    try:
        disk.make_state_folder(folder, "state")
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC, 0o640)
        file = os.fdopen(descriptor, "a")
    except OSError as error:
        raise StoreUnavailable(why_unusable(folder, error)) from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if (folder / "blobs").is_dir():  # a state, which may have been copied to an open folder
            disk.close_to_others(folder)
    except BlockingIOError:
        file.close()
        raise InvalidConfig(
            f"another aggregator runs on the state directory {folder}; end it, or choose another with --state-dir"
        ) from None
    except OSError as error:
        file.close()
        raise StoreUnavailable(
            f"cannot lock the state directory {folder}: {error.strerror or error}{remedy_for(error)}"
        ) from error
    return file


def _make_room(folder: Path) -> None:
    try:
        make_room_to_start(folder)
    except OSError as error:
        raise StoreUnavailable(why_unusable(folder, error)) from error


def _write_endpoint(
    settings: AggregatorSettings, ports: Ports, metrics_port: int | None, admin_socket: Path | None
) -> None:
    endpoint = {
        "host": settings.host,
        "port": ports.port,
        "enrol_port": ports.enrol_port,
        "health_port": ports.health_port,
        "metrics_port": metrics_port,
        "admin_socket": None if admin_socket is None else str(admin_socket),
        "pid": os.getpid(),
    }
    disk.replace_file(settings.state_dir / ENDPOINT_FILE, json.dumps(endpoint).encode(), "endpoint")
