"""Settings of the three processes, each with its default and its range."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, JsonValue, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from fedplcc.shared.bounds import MODEL_KIND, MODEL_KIND_RULE, SUBSET_RULE
from fedplcc.shared.config.sections import DisplayName, Name, form, validate
from fedplcc.shared.config.settings.site_identity import STATE, with_identity
from fedplcc.shared.config.settings.values import (
    Address,
    AnyCountOrAll,
    CountOrAll,
    FactoryNames,
    Issuer,
    MethodNames,
    Names,
    Networks,
    OptionalPath,
    OptionalPort,
    Port,
    ProxyAddress,
    Roles,
    Specifications,
    none_if_off,
)
from fedplcc.shared.config.tables.model import ModelSection
from fedplcc.shared.config.tables.stream import MAX_STAGES, stages_spec
from fedplcc.shared.errors import InvalidConfig
from fedplcc.shared.process.log import Level
from fedplcc.shared.process.loopback import is_loopback
from fedplcc.shared.wire.addresses import is_host, split_address

HIDDEN: dict[str, JsonValue] = {"hidden": True}
"""Mark of a setting for tests: it is in no help and no table."""

WEIGHTS = STATE / "weights"
"""Folder of backbones unless told another."""

DEVICES = form(
    r"^(auto|(cpu|cuda|cuda:\d{1,3})(,(cpu|cuda:\d{1,3})){0,7})$",
    "write auto, cpu, cuda or cuda:N, or up to eight of cpu and cuda:N with commas between them",
)


class Settings(BaseSettings):
    """Settings of every process."""

    model_config = SettingsConfigDict(
        env_prefix="FEDPLCC_", frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True
    )
    table: ClassVar[str]
    """Name of the process's table in a settings file."""
    otherwise: ClassVar[Mapping[str, str]] = {}
    """Other ways to a setting that is missing, by its name."""

    @classmethod
    def completed(cls, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the given settings with those that the process knows from elsewhere."""
        return values

    metrics_host: str = "127.0.0.1"
    """Address at which /metrics is served. Off loopback it is served over TLS to monitors alone, without --insecure."""
    insecure: bool = False
    """Whether plain text is spoken and anyone may call anything, on a trusted network; TLS otherwise."""
    allow_method: MethodNames = ()
    """Method of another package that runs may name: package.module, or an entry point of the group fedplcc.methods. Every
    service of a federation lists it. Nothing else is imported because a run names it. Repeat the flag for several."""
    log_level: Level = "info"
    """Lowest level that is logged."""
    keepalive_s: float = Field(30.0, ge=1, le=3600)
    """Seconds of silence after which the other end of a gRPC connection is pinged; it must answer within twice as long.
    Lower it, at the aggregator first, where the network drops silent connections sooner."""


class AggregatorSettings(Settings):
    """Settings of the aggregator."""

    table = "aggregator"

    host: str = "127.0.0.1"
    """Address to listen at."""
    port: Port = 50051
    """Port to listen at."""
    enrol_port: OptionalPort = 50053
    """Port at which sites join and certificates that have ended are renewed: TLS without a certificate of the caller."""
    gateway_join_file: Path | None = None
    """File with the gateway's invitation while the federation has no gateway; gateway.join in the state directory if not
    set."""
    health_port: OptionalPort = None
    """Port of grpc.health.v1 in plain text on loopback, for the health check of a container or a unit; off if not set."""
    metrics_port: OptionalPort = 9464
    """Port of /metrics."""
    state_dir: Path = Path("fedplcc-state/aggregator")
    """Folder of the blobs and of the SQLite database; created if missing."""
    database_url: Annotated[SecretStr | None, BeforeValidator(none_if_off)] = None
    """PostgreSQL database in place of SQLite: postgresql://HOST/DATABASE. Set a URL with a password in the environment."""
    heartbeat_interval_s: float = Field(2.0, ge=0.05, le=3600)
    """Seconds between two heartbeats of a trainer."""
    lease_heartbeats: int = Field(5, ge=2, le=1000)
    """Heartbeats that a trainer may miss before its lease ends and its client id is free again."""
    max_chunk_bytes: int = Field(1 << 20, ge=1 << 10, le=4 << 20)
    """Largest chunk of a transfer."""
    max_blob_bytes: int = Field(4 << 30, ge=1 << 10)
    """Largest model or prototype set."""
    max_inline_bytes: int = Field(256 << 10, ge=0, le=1 << 20)
    """Most bytes of models and prototype sets inside one message, a commit or a task. Larger ones are transferred in chunks;
    with 0 all of them are."""
    calls_per_s: float = Field(500.0, ge=1, le=1e6)
    """Calls a second of one client's certificate or of one key; ten times as many may come at once. Heartbeats and renewals
    are not counted. More are refused (TOO_MANY_CALLS)."""
    idle_s: float = Field(60.0, ge=0.1, le=3600)
    """Seconds in which the other end of a transfer, or of an open stream, may send or read nothing."""
    fold_block_elements: int = Field(1 << 18, ge=1, le=1 << 26)
    """Elements of each model that the fold holds at a time; changes memory and speed, never the result."""
    keep_models: CountOrAll = 5
    """Latest rounds of each run whose global models are kept, besides the first round's; or "all"."""
    keep_prototypes: AnyCountOrAll = 100
    """Latest committed rounds of each run whose global and local prototypes are kept for the prototype map; or "all". A
    prototype takes four bytes a feature."""
    keep_updates: int = Field(1, ge=0)
    """Latest committed rounds of each run whose updates are kept for a replay."""
    keep_unused_days: float = Field(7.0, ge=0.01, le=10_000)
    """Days for which interrupted uploads and unused initial models are kept."""
    max_open_runs_per_key: int = Field(100, ge=1, le=100_000)
    """Runs of one key that have not ended at a time; another start is refused (TOO_MANY_OPEN_RUNS). In an hour a key begins
    at most twice as many, and as many at once before; another one waits (TOO_MANY_CALLS)."""
    max_open_runs: int = Field(200, ge=1, le=100_000)
    """Most runs that have not ended; a request for another is refused (TOO_MANY_OPEN_RUNS)."""
    pending_days: float = Field(7.0, ge=0.01, le=10_000)
    """Days for which a run waits for its clients to join; then it is stopped."""
    client_metrics: int = Field(256, ge=0, le=10_000)
    """Most clients with metrics of their own, labelled with their id (connected, speed, memory); 0 for none."""
    sso_issuer: Issuer = None
    """Issuer of the OpenID provider at which people sign on: https, or http on loopback. Off if not set."""
    sso_client_id: str = Field("", max_length=256)
    """Id by which the provider knows this federation."""
    sso_secret_file: OptionalPath = None
    """File with the client's secret, which nobody else may read; a public client has none."""
    sso_name: str = Field("", max_length=64)
    """Name of the provider on the console's button; the issuer's host if not set."""
    sso_scopes: str = Field(
        "openid profile",
        max_length=256,
        pattern=form(r"^openid( [!#-\[\]-~]+)*$", "write openid and further scopes, with a space before each"),
    )
    """Scopes that the provider is asked for, with spaces between them."""
    sso_claim: str = Field("roles", min_length=1, max_length=128)
    """Claim that tells what a person may do: a text or a list; dots lead into objects, as realm_access.roles."""
    sso_role: Roles = ()
    """VALUE=SCOPE: who has this value in the claim may do what a key of the scope may. Repeat the flag for several."""
    sso_acr: Names = ()
    """Value that the claim acr must have, as of a sign-on with a second factor; any if not set. Repeat the flag for
    several that do."""
    sso_name_claim: str = Field("name", min_length=1, max_length=128)
    """Claim with a person's name for the audit, where the subject stands beside it."""
    certificate_valid_s: float = Field(30 * 86_400.0, ge=5, le=366 * 86_400, json_schema_extra=HIDDEN)
    """Life of the certificates that the aggregator issues, its own included, in seconds. For tests of renewal."""

    @model_validator(mode="after")
    def _whole_sign_on(self) -> Self:
        if self.sso_issuer is not None and not (self.sso_client_id and self.sso_role):
            raise InvalidConfig("sso_issuer needs sso_client_id, and at least one sso_role: VALUE=SCOPE")
        if self.sso_issuer is not None and self.insecure:
            raise InvalidConfig("sso_issuer and insecure contradict each other: with insecure nobody signs on")
        return self


class GatewaySettings(Settings):
    """Settings of the gateway, which serves /metrics on its own port."""

    table = "gateway"

    host: str = "127.0.0.1"
    """Address to listen at."""
    port: Port = 8080
    """Port to listen at."""
    aggregator: Address = "127.0.0.1:50051"
    """HOST:PORT of the aggregator. If not set, the one that the gateway joined, where it has joined one."""
    http_proxy: ProxyAddress = None
    """HOST:PORT of an HTTP proxy that opens the tunnel to the aggregator (CONNECT); none if not set."""
    state_dir: Path = Path("fedplcc-state/gateway")
    """Folder of the gateway's certificate."""
    join_file: Path = Path("fedplcc-state/aggregator/gateway.join")
    """File with the invitation by which the gateway joins at its first start; an aggregator without a gateway keeps one in
    its state directory."""
    tls_cert: OptionalPath = None
    """File with the certificate for HTTPS and those above it, in PEM; read anew when it changes. Without one, the gateway
    serves HTTPS with the federation's own certificate off loopback, and HTTP on loopback."""
    tls_key: OptionalPath = None
    """File with the key of that certificate in PEM, without a password."""
    plain_http: bool = False
    """Whether HTTP is served off loopback, keys in plain text among it: behind a proxy that ends TLS, or in a container
    whose port is published on loopback only."""
    messages: OptionalPath = None
    """File in TOML with receivers of messages: webhooks and e-mail addresses that are told when runs end or need people;
    see deploy/messages.md. No messages if not set."""
    allowed_hosts: str | None = None
    """Host names and addresses, comma-separated and without ports, that requests may name besides 127.0.0.1 and localhost;
    no other name can then lead a browser to the gateway. If not set: none when it listens on loopback, otherwise any."""

    trusted_proxy: Networks = ()
    """Address or network of a proxy in front of the gateway, whose X-Forwarded-For and X-Forwarded-Proto are believed;
    none by default. Without it all clients behind a proxy share the limits of one address. Repeat the flag for several;
    in the environment, separate them by commas."""
    address_rate: float = Field(200.0, gt=0, le=9999)
    """Requests a second of one address; ten times as many may come at once. More are refused (TOO_MANY_REQUESTS)."""
    key_rate: float = Field(100.0, gt=0, le=9999)
    """Requests a second with one key; ten times as many may come at once."""
    guess_rate: float = Field(20.0, gt=0, le=9999)
    """Different keys a minute that one address may try in vain, as many at once; keys that were in use go on."""

    @property
    def proxies(self) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
        """Networks of the listed proxies."""
        return tuple(ipaddress.ip_network(text) for text in self.trusted_proxy)

    @field_validator("allowed_hosts")
    @classmethod
    def _names_without_ports(cls, hosts: str | None) -> str | None:
        if hosts is not None and not all(map(is_host, hosts.split(","))):
            raise ValueError(
                "write names or addresses without ports, with commas between them: fl.example.org,192.0.2.10"
            )
        return hosts

    @property
    def host_names(self) -> frozenset[str] | None:
        """Host names that requests may name besides those of loopback, in lower case; None for any."""
        if self.allowed_hosts is not None:
            return frozenset(name.lower().removesuffix(".") for name in self.allowed_hosts.split(","))
        return frozenset() if is_loopback(self.host) else None

    @property
    def is_exposed(self) -> bool:
        """Whether plain text goes over a network, and anyone on it may call anything."""
        return self.insecure and not (is_loopback(self.host) and is_loopback(split_address(self.aggregator)[0]))

    @property
    def uses_own_certificate(self) -> bool:
        """Whether HTTPS is served with the certificate that the federation's authority issued."""
        return self.tls_cert is None and not (self.insecure or self.plain_http or is_loopback(self.host))

    @model_validator(mode="after")
    def _one_way_to_serve(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise InvalidConfig("tls_cert and tls_key belong together: give both, or neither")
        if self.tls_cert is not None and (self.plain_http or self.insecure):
            other = "insecure" if self.insecure else "plain_http"
            raise InvalidConfig(f"tls_cert and {other} contradict each other: leave one out")
        return self


class TrainerSettings(Settings):
    """Settings of a trainer."""

    table = "trainer"
    otherwise: ClassVar[Mapping[str, str]] = {
        "client": "or join with `fedplcc join`, which keeps it beside the certificate"
    }

    aggregator: Address = "127.0.0.1:50051"
    """HOST:PORT of the aggregator."""
    http_proxy: ProxyAddress = None
    """HOST:PORT of an HTTP proxy that opens the tunnel to the aggregator (CONNECT); none if not set."""
    client: Name
    """Id of the client that the trainer acts for."""
    domain: Name
    """Label of the data's domain; the client's id if not set."""
    display_name: DisplayName = ""
    """Name for people in any letters, which the console shows beside the id."""
    data: Specifications = Field(min_length=1, max_length=MAX_STAGES)
    """Data specification: folder:PATH, npz:PATH, mnist:PATH and so on; `fedplcc data` tries one. Repeat the flag,
    once for each stage, for runs whose data change."""
    sync: Literal["stream", "poll"] = "stream"
    """Way to wait for tasks: one stream that stays open, or short calls, for proxies that cut idle streams."""
    poll_hold_s: float = Field(20.0, ge=0.05, le=3600)
    """With sync = poll: longest wait of a call in seconds, shorter than the proxy's limit; the aggregator allows 20."""
    device: str = Field("auto", pattern=DEVICES)
    """Device of training: auto, cpu, cuda or cuda:N; several of one kind, such as cuda:0,cuda:1, share each mini-batch."""
    privacy_epsilon: float | None = Field(None, gt=0, le=1000)
    """Most epsilon that releases of this client's class sums may come to over all runs, with `privacy_delta`; beyond it
    a run meets BUDGET_SPENT. With it the client tells no class counts when it joins, and keeps readings and the details of
    problems to itself, which runs of privacy.claim = "site" need. No limit if not set."""
    privacy_delta: float = Field(1e-5, gt=0, le=1e-2)
    """Delta with which epsilon is told and limited."""
    model: str | None = None
    """This client's own kind of model, for runs that share no models: resnet10, resnet18, cnn4, cnn5, timm:NAME or
    package.module:factory, which needs no --allow-code. The run's if not set."""
    stem: str | None = None
    """Stem of `model`, for a ResNet; its first stem if not set."""
    norm: Literal["batch", "group"] | None = None
    """Normalisation of `model`, for a ResNet; batch if not set."""
    model_options: str | None = None
    """Options of `model`, if it is timm:NAME or your own code: a JSON object with the keys of [model.options]."""
    model_weights: str | None = Field(
        None, pattern=form(r"^[^@]+@[0-9a-f]{64}$", "write NAME@SHA256, as `fedplcc weights list` shows both")
    )
    """Weights that `model` begins with: NAME@SHA256, as `fedplcc weights list` shows both."""
    samples_per_class: int | None = Field(None, ge=1)
    """Training samples per class in a seeded, class-balanced subset; all samples if not set."""
    fraction: float | None = Field(None, gt=0, le=1)
    """Share of the training samples, drawn by the run's seed from each class alike, so that the classes keep their balance;
    at least one of each. In place of `samples_per_class`; all samples if neither is set."""
    validation_per_class: int | None = Field(None, ge=1)
    """Training samples of a class that are set aside for validation, drawn by the run's seed, at most half of them; those of
    the run's data.validation_every if not set."""
    evaluate_only: bool = False
    """Whether the client never trains and sends no update: it says that it has no training image, and reports on its test
    images in every evaluated round. Runs do not wait for its updates."""
    withhold_below: int = Field(1, ge=1)
    """Least images of a class with which an evaluation set's confusion matrix and histograms leave this site, of the classes
    that the set has. Correct and total predictions of each class always do. 1 withholds nothing."""
    allow_code: FactoryNames = ()
    """MODULE:NAME of code that runs may name as their model; none by default. A run that names other code is refused
    before any of it is imported. Repeat the flag for several; in the environment, separate them by commas."""
    policy: Path | None = None
    """TOML file with the owner's policy: the runs that this site takes part in, and what may leave it. It is read when the
    trainer starts; `fedplcc config init --policy` writes one. No policy if not set."""
    weights_dir: Path = WEIGHTS
    """Folder of the backbones that runs may begin with, which `fedplcc weights` keeps; one for all trainers of a host."""
    public_data: str | None = None
    """Data specification of unlabelled images for runs that learn from such (fcclplus), wherever they lie at this site; none
    by default. It is read in place of the run's public.data, and must hold the same images."""
    state_dir: Path
    """Folder of the trainer's state, one per client; trainer-CLIENT in fedplcc-state if not set."""
    join_file: Path | None = None
    """File with the invitation by which a trainer without an identity joins when it starts. FEDPLCC_JOIN, which is the
    invitation itself, goes before it."""
    metrics_port: OptionalPort = 0
    """Port of /metrics."""
    health_port: OptionalPort = None
    """Port of grpc.health.v1 on loopback, for the health check of a container or a unit; off if not set."""
    owner_port: OptionalPort = None
    """Port on loopback of a page for this site's owner: runs that wait for approval, to approve, reject or withdraw. Its
    address, with a secret, stands in the state directory: approval/page. Off if not set."""
    threads: int = Field(1, ge=1, le=256)
    """Processor threads with which numerical libraries start; a run's configuration sets the threads of training."""

    @classmethod
    def completed(cls, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the given settings with those that the identity in the state directory tells.

        Raises:
            InvalidConfig: The identity cannot be read, or is of another client.
        """
        return with_identity(values)

    @property
    def data_spec(self) -> str:
        """The one data specification of all stages."""
        return stages_spec(self.data)

    @property
    def own_model(self) -> ModelSection | None:
        """The client's own kind of model; None where it trains the run's.

        Raises:
            InvalidConfig: There is no such model.
        """
        if self.model is None:
            if (self.stem, self.norm, self.model_options, self.model_weights) != (None, None, None, None):
                raise InvalidConfig(
                    "stem, norm, model_options and model_weights are those of a client's own model: give --model too"
                )
            return None
        table: dict[str, Any] = {"name": self.model}
        if self.stem is not None:
            table["stem"] = self.stem
        if self.norm is not None:
            table["norm"] = self.norm
        if self.model_options is not None:
            table["options"] = _json_object("model_options", self.model_options)
        if self.model_weights is not None:
            table["weights"], _, table["weights_sha256"] = self.model_weights.rpartition("@")
        section = validate(ModelSection, table, "model.")
        if not MODEL_KIND.fullmatch(section.kind):
            raise InvalidConfig(f"model: {MODEL_KIND_RULE}")
        return section

    @model_validator(mode="after")
    def _one_size_of_subset(self) -> Self:
        if self.samples_per_class is not None and self.fraction is not None:
            raise InvalidConfig(SUBSET_RULE)
        return self

    @model_validator(mode="after")
    def _a_model_that_there_is(self) -> Self:
        _ = self.own_model
        return self

    @model_validator(mode="before")
    @classmethod
    def _named_after_the_client(cls, values: Any) -> Any:
        if isinstance(values, dict):
            # Without a client these values are never used: only the missing client is reported.
            client = values["client"] if isinstance(values.get("client"), str) else "client"
            return {"domain": client, "state_dir": Path("fedplcc-state") / f"trainer-{client}", **values}
        return values


def _json_object(name: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise InvalidConfig(f'{name} is a JSON object, such as {{"hidden_dim": 64}}')
    return value
