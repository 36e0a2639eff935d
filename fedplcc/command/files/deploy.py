"""`fedplcc deploy files`: the files of a deployment, from the installed package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedplcc.command.examples import examples
from fedplcc.command.exit_codes import explains_errors

EXAMPLES = examples("fedplcc deploy files", "fedplcc deploy files /srv/fedplcc")


@explains_errors
def files(
    *,
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="[FOLDER]",
            help="Where they go, as in a clone; the present folder if not given.",
            file_okay=False,
            show_default=False,
        ),
    ] = Path(),
) -> None:
    """Write what a deployment needs: Compose, Dockerfiles with locks, systemd, a Helm chart, Prometheus and Grafana.

    Nothing is overwritten: a file that is there and differs is named, and none is written. The guide to them is
    deploy/README.md.
    """
    from fedplcc.deployment.files import WHEEL, deployment_files, write_files

    written = write_files(folder)
    print(
        f"wrote {len(written)} of {len(deployment_files())} files into {folder.resolve()}; begin with deploy/README.md"
    )
    if not (folder / WHEEL).is_file():
        print(f"for containers copy {WHEEL} into the same folder: the images install it")
    print("then, in that folder: docker compose -f deploy/compose.yaml up --detach --build")
