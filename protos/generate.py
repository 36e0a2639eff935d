"""Generate shared/gen from protos/, check that what is committed is current, or keep the descriptors of a release.

protoc writes `from fedplcc.v1 import ...`, which would hit the `fedplcc` package; that one prefix is rewritten.
"""

from __future__ import annotations

import argparse
import filecmp
import re
import shutil
import sys
import tempfile
from importlib import resources
from pathlib import Path

from grpc_tools import protoc

PROTOS = Path(__file__).parent
GENERATED = PROTOS.parent / "shared" / "gen"


def run_protoc(*outputs: str) -> None:
    """Let protoc write these outputs of all sources."""
    sources = sorted(str(path) for path in PROTOS.glob("fedplcc/v1/*.proto"))
    well_known = str(resources.files("grpc_tools") / "_proto")
    if protoc.main(["protoc", f"-I{PROTOS}", f"-I{well_known}", *outputs, *sources]) != 0:
        sys.exit("protoc failed")


def generate(into: Path) -> None:
    """Write every generated module, with its stubs and packages, below `into`."""
    into.mkdir(parents=True, exist_ok=True)
    run_protoc(f"--python_out={into}", f"--pyi_out={into}", f"--grpc_python_out={into}")
    for path in [*into.rglob("*.py"), *into.rglob("*.pyi")]:
        text = path.read_text()
        path.write_text(re.sub(r"^from fedplcc\.", "from fedplcc.shared.gen.fedplcc.", text, flags=re.MULTILINE))
    for package in (into, into / "fedplcc", into / "fedplcc" / "v1"):
        (package / "__init__.py").touch()


def differences(left: Path, right: Path) -> list[str]:
    """Names of the files that differ between two generated trees."""
    names = {path.relative_to(root) for root in (left, right) for path in root.rglob("*.py*") if path.suffix != ".pyc"}
    return [
        str(name)
        for name in sorted(names)
        if not ((left / name).is_file() and (right / name).is_file() and filecmp.cmp(left / name, right / name, False))
    ]


def main() -> None:
    """Generate, or check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if the committed code is not current")
    parser.add_argument("--release", metavar="VERSION", help="write VERSION.binpb, which `buf breaking` compares with")
    chosen = parser.parse_args()
    if chosen.release:
        run_protoc(f"--descriptor_set_out={PROTOS / f'{chosen.release}.binpb'}", "--include_imports")
        return
    if not chosen.check:
        shutil.rmtree(GENERATED, ignore_errors=True)
        generate(GENERATED)
        return
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder) / "gen")
        stale = differences(Path(folder) / "gen", GENERATED)
    if stale:
        sys.exit("generated code is not current; run `make proto`:\n  " + "\n  ".join(stale))


if __name__ == "__main__":
    main()
