"""`fedplcc doctor --method`: the contract of methods, tried on one of another package."""

from __future__ import annotations

from fedplcc.command.exit_codes import ExitCode


def check_method(name: str, *, as_json: bool) -> int:
    """Try the contract of methods on one of another package, which is imported; the exit code is 1 if a check fails.

    They are the checks that fedplcc's own methods pass: numpy and torch agree, gradients are right and finite, functions are
    pure, neither orders nor cuts change a byte, what clients report is accepted, the server half needs no torch, and
    docstrings explain paper and hyper-parameters.
    """
    from fedplcc.method_contract.contract import findings, method_of
    from fedplcc.shared.config.run import canonical_json
    from fedplcc.terminal.progress import console_for

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
