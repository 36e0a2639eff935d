"""`fedplcc model ...`: use a run's model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedplcc.command.examples import examples
from fedplcc.command.exit_codes import HELP, ExitCode, explains_errors, say
from fedplcc.command.model.options import Device, Model, read_model
from fedplcc.shared.bounds import SUBSET_RULE
from fedplcc.shared.errors import InvalidConfig
from fedplcc.terminal.printable import table_cell

if TYPE_CHECKING:
    from fedplcc.models.trained_model import TrainedModel

# A command imports modules with torch itself, so that --help answers at once.

app = typer.Typer(help="Use the model of a run.", epilog=HELP, no_args_is_help=True)


class SplitName(StrEnum):
    """Values of `--split`."""

    test = "test"
    train = "train"
    all = "all"


Config = Annotated[
    Path | None,
    typer.Option(
        help="The run's configuration file, for a model that has no run.json beside it or that is package.module:factory.",
        dir_okay=False,
    ),
]
OF_THE_CLIENT = "As the client's trainer has it; as the run's folder tells if not given."
OfEachClass = Annotated[int | None, typer.Option(metavar="N", help=OF_THE_CLIENT, min=1)]


@app.command(
    epilog=examples(
        "fedplcc model predict fedplcc-runs/digits seven.png more-images/",
        "fedplcc model predict results *.png --top 3 --json > predictions.jsonl",
        "fedplcc model predict results scans/ --csv predictions.csv",
    )
)
@explains_errors
def predict(
    *,
    model: Model,
    images: Annotated[
        list[Path],
        typer.Argument(metavar="IMAGES", help="Image files, and folders of them."),
    ],
    top: Annotated[int, typer.Option(help="Number of classes to print for each image.", min=1)] = 1,
    csv: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write a file with a table instead: a line for each image, with every class's probability.",
            dir_okay=False,
        ),
    ] = None,
    config: Config = None,
    device: Device = "auto",
    as_json: bool,
) -> int:
    """Classify images: class, probability, and the nearest global prototype.

    The nearest prototype has a class, a cosine with the image's features, and a weight: its share of the samples of its
    class. A class that disagrees with the predicted one, or a low cosine, marks an image that is unlike the
    training images. A file that cannot be read is named on stderr, the others are predicted, and the exit code is 2.
    """
    from fedplcc.models.prediction import PredictionTable, image_files, predictions
    from fedplcc.shared.config.run import canonical_json
    from fedplcc.terminal.progress import console_for

    trained = read_model(model, config, device)
    problems: list[str] = []

    def on_problem(sentence: str) -> None:
        problems.append(sentence)
        say(sentence)

    if csv is not None:
        num_written = _write_table(csv, trained, images, on_problem)
        console_for(json=as_json).print(f"{num_written} predictions written to {csv}")
        return ExitCode.USAGE if problems else ExitCode.OK
    table = PredictionTable(trained.config.data.classes, has_prototypes=len(trained.prototypes) > 0)
    files = image_files(images, on_problem)
    for number, prediction in enumerate(predictions(trained, files, top=top, on_problem=on_problem)):
        if as_json:
            print(canonical_json(prediction.as_json()), flush=True)
            continue
        if number == 0:
            print(table.heading())
        for line in table.lines(prediction):
            print(line)
    return ExitCode.USAGE if problems else ExitCode.OK


def _write_table(file: Path, trained: TrainedModel, images: Sequence[Path], on_problem: Callable[[str], None]) -> int:
    """Write predictions as CSV; returns their number. A file that exists is replaced when all of it is there."""
    import csv
    import io

    from fedplcc.models.prediction import csv_lines, image_files, predictions
    from fedplcc.runs.atomic_file import atomic_file

    found = predictions(trained, image_files(images, on_problem), on_problem=on_problem)
    lines = csv_lines(found, trained.config.data.classes, has_prototypes=len(trained.prototypes) > 0)
    with atomic_file(file, option="--csv") as opened:
        text = io.TextIOWrapper(opened, encoding="utf-8", newline="", errors="surrogateescape")
        writer = csv.writer(text, lineterminator="\n")
        number = -1  # without the heading
        for line in lines:
            writer.writerow(map(table_cell, line))
            number += 1
        text.flush()
        text.detach()
    return number


@app.command(
    epilog=examples(
        "fedplcc model evaluate fedplcc-runs/digits --data digits:mnist",
        "fedplcc model evaluate results --data folder:scans --split all --json",
    )
)
@explains_errors
def evaluate(
    *,
    model: Model,
    data: Annotated[
        str,
        typer.Option(help="Data specification, as a trainer takes it: digits:DOMAIN, folder:PATH, npz:PATH, ..."),
    ],
    split: Annotated[
        SplitName, typer.Option(help="Which images: the test images, the training images, or all there are.")
    ] = SplitName.test,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for evaluation.json and its pictures; evaluations/DATA in the model's folder if not given.",
            file_okay=False,
        ),
    ] = None,
    config: Config = None,
    device: Device = "auto",
    as_json: bool,
) -> None:
    """Evaluate a model on labelled images: accuracy, overall and per class, and the confusion matrix.

    The test images of one of the run's clients, on the same type of machine, give exactly the accuracy in the run's
    metrics.jsonl.
    """
    from fedplcc.models.evaluation import PICTURE, evaluate_model, evaluation_folder, write_evaluation
    from fedplcc.runs.atomic_file import make_folder
    from fedplcc.shared.config.run import canonical_json
    from fedplcc.terminal.progress import console_for

    trained = read_model(model, config, device)
    evaluation = evaluate_model(trained, data, split.value)
    console = console_for(json=as_json)
    for line in evaluation.lines():
        console.print(line)
    _say_unreadable(evaluation.unreadable)
    folder = out or evaluation_folder(trained, data, split.value)
    make_folder(folder)
    names = write_evaluation(folder, evaluation)
    console.print(f"written to {folder}: {', '.join(names)}")
    if PICTURE not in names:
        console.print(f"{PICTURE} is not drawn: matplotlib is not installed (pip install matplotlib)")
    if as_json:
        print(canonical_json({**evaluation.as_json(), "directory": str(folder.resolve())}))


@app.command(
    epilog=examples(
        "fedplcc model adapt results --data folder:scans -o here.safetensors",
        "fedplcc model adapt run --data npz:a --client a --samples-per-class 30",
        "fedplcc model adapt results --temperature --data folder:scans",
    )
)
@explains_errors
def adapt(
    *,
    model: Model,
    data: Annotated[
        str,
        typer.Option(
            help="Data specification, whose training images are used and labels are not; a folder: without class folders "
            "is used whole. With --temperature its validation images and their labels."
        ),
    ],
    temperature: Annotated[
        bool, typer.Option("--temperature", help="Fit the temperature of the probabilities, and no statistics.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="File to write; model-at-DATA.safetensors, or model-temperature-DATA, beside the model if not given.",
            dir_okay=False,
        ),
    ] = None,
    client: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="The client of the run whose data they are, for the subset of them that it trained on."
        ),
    ] = None,
    samples_per_class: OfEachClass = None,
    fraction: Annotated[float | None, typer.Option(metavar="SHARE", help=OF_THE_CLIENT)] = None,
    validation_per_class: OfEachClass = None,
    config: Config = None,
    device: Device = "auto",
    as_json: bool,
) -> None:
    """Fit a model to a site without training: BatchNorm's mean and variance become those of the site's images.

    With --temperature one number is fitted to labelled validation images, by which logits are divided: predict and evaluate
    then give probabilities that are as high as the model is right (Guo et al., ICML 2017), and the same classes.

    The weights stay. predict, evaluate, export and load_model take the file that is written, together with its description
    beside it. The training images of one of the run's clients, with --client, give, on the same type of machine, exactly
    the accuracy_local that evaluation.batch_norm = "site" reports.
    """
    from fedplcc.models.adaptation import (
        Subset,
        as_recorded,
        check_place,
        usual_place,
        with_statistics,
        with_temperature,
        write_adapted,
    )
    from fedplcc.runs.atomic_file import make_folder
    from fedplcc.shared.config.run import canonical_json
    from fedplcc.terminal.progress import console_for

    if fraction is not None and not 0 < fraction <= 1:
        raise InvalidConfig(f"--fraction {fraction:g} is no share of a client's images: above 0, and 1 at most")
    if fraction is not None and samples_per_class is not None:
        raise InvalidConfig(SUBSET_RULE)
    if client is None and (samples_per_class or fraction or (validation_per_class and not temperature)):
        raise InvalidConfig("a client's subset is drawn by its name: name the client with --client")
    trained = read_model(model, config, device)
    subset = None
    if client is not None or validation_per_class is not None:
        given = Subset(
            client=client or "",
            samples_per_class=samples_per_class,
            fraction=fraction,
            validation_per_class=validation_per_class,
        )
        subset = given if client is None else as_recorded(given, trained)
    place = out or usual_place(trained, data, is_temperature=temperature)
    check_place(place)
    make_folder(place.parent)
    adapted = (with_temperature if temperature else with_statistics)(trained, data, subset)
    write_adapted(place, adapted)
    _say_unreadable(adapted.unreadable)
    for doubt in adapted.doubts:
        say(doubt)
    console, description = console_for(json=as_json), adapted.description
    what = f"statistics of {description.num_images}"
    if temperature:
        what = f"temperature {description.temperature:.3g} of {description.temperature_images} validation"
    console.print(f"{trained.title}: {what} images of {data}")
    console.print(f"written to {place}: fedplcc model evaluate {place} --data ...")
    if as_json:
        facts = {**description.facts, "model_sha256": description.model_sha256}
        print(canonical_json({**facts, "num_unreadable": len(adapted.unreadable), "file": str(place.resolve())}))


@app.command(
    epilog=examples("fedplcc model export fedplcc-runs/digits --onnx digits.onnx"),
)
@explains_errors
def export(
    *,
    model: Model,
    onnx: Annotated[Path, typer.Option(help="The file to write; its folder must exist.", dir_okay=False)],
    config: Config = None,
    as_json: bool,
) -> None:
    """Write a model as an ONNX file, for programs without torch.

    It takes a batch of any size as `images`, normalised as `mean` and `std` in its metadata say, and gives `logits`, in the
    order of `classes` in its metadata, and `features`. Where onnxruntime is installed, its results are compared with
    torch's.
    """
    from fedplcc.models.onnx_export import EXTRA_CHECK, export_onnx, metadata
    from fedplcc.runs.atomic_file import atomic_file
    from fedplcc.shared.config.run import canonical_json
    from fedplcc.terminal.progress import console_for

    if onnx.exists() and onnx.suffix != ".onnx":
        raise InvalidConfig(f"{onnx} is there already and is no .onnx file, so it is kept; name another with --onnx")
    trained = read_model(model, config, "cpu")
    with atomic_file(onnx, option="--onnx") as file:  # first, so that a wrong path is reported before the work
        data, comparison = export_onnx(trained)
        file.write(data)
    console = console_for(json=as_json)
    console.print(
        f"{trained.title} written to {onnx}: {len(data) / 1e6:.1f} MB, inputs images, outputs logits and features"
    )
    if comparison is None:
        console.print(f"not compared with torch: onnxruntime is not installed ({EXTRA_CHECK})")
    else:
        console.print(
            f"onnxruntime gives what torch gives: largest difference {comparison.logits:.1g} in logits, "
            f"{comparison.features:.1g} in features"
        )
    if as_json:
        difference = None if comparison is None else {"logits": comparison.logits, "features": comparison.features}
        print(canonical_json({"file": str(onnx.resolve()), "difference": difference, "metadata": metadata(trained)}))


def _say_unreadable(names: Sequence[str]) -> None:
    if names:
        say(f"files that could not be read are left out: {len(names)}, the first is {names[0]}")
