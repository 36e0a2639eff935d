"""`fedplcc model map`: a picture of a run's features and prototypes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedplcc.command.examples import examples
from fedplcc.command.exit_codes import explains_errors, say
from fedplcc.command.model.options import Device, Model, read_model
from fedplcc.pictures import MAP

# A command imports modules with torch itself, so that --help answers at once.
if TYPE_CHECKING:
    from rich.console import Console


EXAMPLES = examples(
    "fedplcc model map fedplcc-runs/digits",
    "fedplcc model map ours --before theirs --out compared.svg",
    "fedplcc model map fetched --data a=folder:a --data b=folder:b",
)

Data = Annotated[
    list[str] | None,
    typer.Option(
        "--data",
        metavar="NAME=DATA",
        help="The data of a client, once for each client to show; as the run's folder or --config says if not given.",
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        help="The run's configuration file, for a model that has no run.json beside it, that is package.module:factory, or "
        "whose folder does not name its clients' data.",
        dir_okay=False,
    ),
]


@explains_errors
def draw_map(
    *,
    model: Model,
    before: Annotated[
        str,
        typer.Option(
            metavar="first|none|MODEL",
            help="What stands beside it: the model that the run began with, nothing, or the folder of another run.",
        ),
    ] = "first",
    data: Data = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help=f"The picture, .png, .svg or .pdf; {MAP} in the model's folder if not given.", dir_okay=False
        ),
    ] = None,
    per_class: Annotated[
        int, typer.Option(help="Test images of each class and domain; at most 2000 in all.", min=1)
    ] = 40,
    config: Config = None,
    device: Device = "auto",
    as_json: bool,
) -> None:
    """Draw features of test images with the prototypes, before and after training.

    Colours are classes, shapes are domains. An outlined point is a local prototype of a client's training images, a star a
    global one as large as its share of its class. t-SNE puts them on a plane, by cosine.
    """
    from fedplcc.pictures.making import make_map
    from fedplcc.pictures.map_drawing import draw_map as drawn
    from fedplcc.pictures.models import before_model
    from fedplcc.pictures.shown_clients import shown_clients
    from fedplcc.runs.atomic_file import atomic_file
    from fedplcc.shared.config.run import canonical_json
    from fedplcc.terminal.progress import console_for

    trained = read_model(model, config, device)
    clients = shown_clients(trained.file, trained.config, config_file=config, named=data or ())
    place = _place(out, trained.file.with_name(MAP))
    other = before_model(trained, before)
    if other is not None and other.sha256 == trained.sha256:
        say("both panels show the same model; of a run whose updates carry no model, it is that of round 0")
    console = console_for(json=as_json)
    with _shown_steps(console) as on_step:
        picture = drawn(make_map(trained, other, clients, per_class=per_class, on_step=on_step), place.suffix)
    with atomic_file(place) as file:
        file.write(picture)
    console.print(f"written to {place}")
    if as_json:
        print(canonical_json({"file": str(place.resolve())}))


def _place(out: Path | None, usual: Path) -> Path:
    """The picture's file; checks before the work that it can be written and drawn."""
    from fedplcc.pictures.style import check_suffix
    from fedplcc.runs.atomic_file import make_folder

    import_module("matplotlib")
    place = out or usual
    check_suffix(place)
    make_folder(place.parent)
    return place


@contextmanager
def _shown_steps(console: Console) -> Iterator[Callable[[str], None]]:
    """Show the present step on a terminal within the block."""
    with console.status("reading") as status:
        yield status.update
