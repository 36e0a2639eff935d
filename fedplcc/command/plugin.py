"""`fedplcc plugin ...`: methods of other packages."""

from __future__ import annotations

from typing import Annotated

import typer

from fedplcc.command.examples import examples
from fedplcc.command.exit_codes import HELP, ExitCode, explains_errors
from fedplcc.command.model_options import AsJson

app = typer.Typer(help="Try methods of other packages.", epilog=HELP, no_args_is_help=True)


@app.callback()
def plugin() -> None:
    """Try methods of other packages."""


@app.command(
    epilog=examples(
        "fedplcc plugin check fedplcc_pull.method",
        "fedplcc plugin check fedplcc_pull.method --json",
    )
)
@explains_errors
def check(
    name: Annotated[
        str,
        typer.Argument(
            metavar="METHOD",
            help="package.module with the method's record METHOD, or an entry point of the group fedplcc.methods.",
            show_default=False,
        ),
    ],
    as_json: AsJson = False,
) -> int:
    """Try the contract of methods on one of another package, which is imported.

    They are the checks that fedplcc's own methods pass: numpy and torch agree, gradients are right and finite, functions are
    pure, neither orders nor cuts change a byte, what clients report is accepted, the server half needs no torch, and
    docstrings explain paper and hyper-parameters. The exit code is 1 if one of them fails.
    """
    from fedplcc.method_contract.contract import findings, method_of
    from fedplcc.terminal.progress import console_for
    from shared.config.run import canonical_json

    console = console_for(json=as_json)
    found = []
    for finding in findings(method_of(name)):
        found.append(finding)
        mark = "ok    " if finding.problem is None else "FAILED"
        console.print(f"{mark} {finding.sentence}", markup=False, highlight=False, soft_wrap=True)
        if finding.problem is not None:
            console.print(f"       {finding.problem}", markup=False, highlight=False, soft_wrap=True)
    failed = [finding for finding in found if finding.problem is not None]
    console.print(f"{name}: {len(found) - len(failed)} of {len(found)} checks passed", highlight=False)
    if as_json:
        problems = [{"check": finding.sentence, "problem": finding.problem} for finding in failed]
        print(canonical_json({"method": name, "checks": len(found), "problems": problems}))
    return ExitCode.FAILED if failed else ExitCode.OK
