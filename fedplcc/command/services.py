"""`fedplcc aggregator`, `fedplcc trainer` and `fedplcc gateway`: the services, as `python -m PACKAGE` starts them.

One module for the three: each is built from its settings in shared/config/settings by the same code. Loading the
settings takes a moment, so the list of commands shows plain functions; a command with options is built when it is called.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import typer

from fedplcc.command.examples import examples
from fedplcc.command.exit_codes import explains_errors

if TYPE_CHECKING:
    from fedplcc.shared.config.settings import Settings

VALUES = {
    "device": ("auto", "cpu", "cuda", "cuda:0"),
    "data": ("digits:mnist", "digits:optdigits", "digits:mnistm", "digits:synth", "folder:", "npz:"),
    "metrics_port": ("off",),
    "host": ("127.0.0.1", "0.0.0.0"),
    "metrics_host": ("127.0.0.1", "0.0.0.0"),
    "aggregator": ("127.0.0.1:50051",),
}
"""Values that the shell offers; a setting may have others too."""
ON_BY_DEFAULT = "Options that are on by default"
"""Heading of the flags that have an opposite."""


def aggregator() -> None:
    """Run the aggregator: runs, rounds, and everything that is kept."""


def trainer() -> None:
    """Run a trainer: act for one client, beside its data."""


def gateway() -> None:
    """Run the gateway: run control by REST, progress by server-sent events."""


SERVICES = (aggregator, trainer, gateway)


def aggregator_command() -> Any:
    """Build the command with its options."""
    from fedplcc.shared.config.settings import AggregatorSettings

    def serve(settings: AggregatorSettings) -> int:
        from fedplcc.aggregator.app import run

        return run(settings)

    return _command(
        aggregator,
        AggregatorSettings,
        serve,
        "fedplcc aggregator",
        "fedplcc aggregator --host 0.0.0.0 --insecure --state-dir /var/lib/fedplcc",
    )


def trainer_command() -> Any:
    """Build the command with its options."""
    from fedplcc.shared.config.settings import TrainerSettings

    def serve(settings: TrainerSettings) -> int:
        from fedplcc.trainer.app import run

        return run(settings)

    def join_first(values: Mapping[str, Any]) -> None:
        from fedplcc.trainer.joining import join_if_invited

        join_if_invited(values)

    return _command(
        trainer,
        TrainerSettings,
        serve,
        "fedplcc trainer --client north --data folder:images",
        "fedplcc trainer --config trainer.toml --device cuda",
        first=join_first,
    )


def gateway_command() -> Any:
    """Build the command with its options."""
    from fedplcc.shared.config.settings import GatewaySettings

    def serve(settings: GatewaySettings) -> int:
        from fedplcc.gateway.app import run

        return run(settings)

    return _command(
        gateway,
        GatewaySettings,
        serve,
        "fedplcc gateway",
        "fedplcc gateway --aggregator 10.0.0.5:50051 --insecure --port 8081",
    )


BUILDERS: dict[str, Callable[[], Any]] = {
    "aggregator": aggregator_command,
    "trainer": trainer_command,
    "gateway": gateway_command,
}


def _command(
    service: Callable[[], None],
    kind: type[Settings],
    serve: Callable[[Any], int],
    *lines: str,
    first: Callable[[Mapping[str, Any]], None] = lambda _values: None,
) -> Any:
    """A command with an option for every setting of a service, and `--config` for a file; `first` is load's."""
    from fedplcc.shared.config.settings import Settings, load

    def command(**given: Any) -> int:
        file = given.pop("config")
        return serve(load(kind, given, file, first))

    help_text = f"TOML file with a table `[{kind.table}]` of these settings."
    config = Annotated[Path | None, typer.Option(help=help_text, dir_okay=False)]
    parameters = [inspect.Parameter("config", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=config)]
    # A service's own settings come first.
    for name in sorted(kind.model_fields, key=lambda name: name in Settings.model_fields):
        annotation = _option(name, kind.model_fields[name])
        parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation))
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    explanation = (
        f"{service.__doc__}\n\nEvery setting may also stand in a file or in the environment, in capitals after FEDPLCC_: "
        "flags win over the environment, the environment over the file."
    )
    made = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="markdown")
    made.command(service.__name__, help=explanation, epilog=examples(*lines))(explains_errors(command))
    return typer.main.get_command(made)


def _option(name: str, field: Any) -> Any:
    """A setting as an option; the settings themselves check its value."""
    has_default = not field.is_required() and field.default is not None and field.default is not False
    from fedplcc.shared.config.settings import is_hidden, is_list

    help_text = (field.description or "") + (f" Default: {field.default}." if has_default else "")
    flag = "--" + name.replace("_", "-")
    if field.annotation is bool:
        flag += f"/--no-{flag[2:]}" if field.default else ""
        # Beside the others, its two flags would take a column that cuts the longest names on a terminal of 80 columns.
        panel = ON_BY_DEFAULT if field.default else None
        return Annotated[bool | None, typer.Option(flag, help=help_text, rich_help_panel=panel)]
    if field.annotation is Path:
        is_file = name.endswith("_file")
        return Annotated[Path | None, typer.Option(flag, help=help_text, file_okay=is_file, dir_okay=not is_file)]
    is_choice = get_origin(field.annotation) is Literal
    values = get_args(field.annotation) if is_choice else VALUES.get(name, ())
    if is_choice:
        help_text += f" One of {', '.join(values)}."

    def offered(incomplete: str) -> list[str]:
        return [value for value in values if value.startswith(incomplete)]

    completion = offered if values else None
    if is_list(field.annotation):
        return Annotated[
            list[str] | None,
            typer.Option(flag, help=field.description, metavar=_metavar(name, field), autocompletion=completion),
        ]
    return Annotated[
        str | None,
        typer.Option(
            flag, help=help_text, metavar=_metavar(name, field), autocompletion=completion, hidden=is_hidden(field)
        ),
    ]


def _metavar(name: str, field: Any) -> str:
    """A short word for the value: columns of the help are narrow."""
    for ending, word in (
        ("port", "PORT"),
        ("host", "HOST"),
        ("_s", "SECONDS"),
        ("_bytes", "BYTES"),
        ("_level", "LEVEL"),
        ("_code", "NAME"),
        ("_file", "PATH"),
        ("_download", "NAME"),
    ):
        if name.endswith(ending):
            return word
    return "NUMBER" if int in (field.annotation, *get_args(field.annotation)) else name.upper()
