"""Build, list, check, bundle and sign a release of this commit; nothing is published.

python -m release --key ~/.ssh/id_ed25519
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from release import licences, locks, offline, signing
from release.building import Built, build_twice, digest, write_tar
from release.project import Project, Refused, read_project
from release.sbom import list_parts


def make_release(
    root: Path, key: Path, out: Path, *, bundle: tuple[str, ...] = (), site: Path | None = None
) -> tuple[Path, str]:
    """Make the release of a working tree's commit.

    Args:
        root: The working tree.
        key: What signs, a key of OpenSSH.
        out: Folder in which the release's own folder is made.
        bundle: Locks whose wheels go into the offline bundle; no bundle without any.
        site: The built documents, if they are part of it.

    Returns:
        The release's folder, and the fingerprint of the key.

    Raises:
        Refused: Something forbids it; nothing is left then.
    """
    project = read_project(root)
    folder = out / f"{project.name}-{project.version}"
    if folder.exists():
        raise Refused(f"{folder} is there already: remove it, or name another folder by --out")
    if problems := locks.disagreements(project.table, root / locks.FOLDER):
        raise Refused("\n".join([*problems, "run: python -m release.locks"]))
    if problems := licences.refusals(root / locks.FOLDER):
        raise Refused("\n".join(problems))
    fingerprint = signing.fingerprint_of(key)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="release-", dir=out) as made:
        work, unfinished = Path(made), Path(made) / folder.name
        unfinished.mkdir()
        built = _write_packages(project, work, unfinished)
        if bundle:
            _write_bundle(project, built, bundle, work, unfinished)
        if site is not None:
            files: dict[str, Path | bytes] = {
                f"{project.name}-{project.version}-docs/{path.relative_to(site)}": path
                for path in site.rglob("*")
                if path.is_file()
            }
            write_tar(unfinished / f"{project.name}-{project.version}-docs.tar.gz", files, project.epoch_s)
        shutil.copyfile(root / locks.FOLDER / licences.FILE, unfinished / licences.FILE)
        notes = f"# {project.name} {project.version} - {project.dated}\n\n{project.notes}\n\nCommit {project.commit}.\n"
        (unfinished / "RELEASE-NOTES.md").write_text(notes, encoding="utf-8")
        signing.sign(signing.write_sums(unfinished), key)
        unfinished.rename(folder)
    return folder, fingerprint


def _write_packages(project: Project, work: Path, out: Path) -> Built:
    """Both distributions, and beside them the list of parts that is in the wheel."""
    pins = {pin.name: pin for lock in locks.DEPLOYED for pin in _pins(project, lock)}
    listed = licences.read_list(project.root / locks.FOLDER / licences.FILE)
    parts = list_parts(project, pins.values(), listed)
    name = f"{project.name}-{project.version}.cdx.json"
    (out / name).write_bytes(parts)
    return build_twice(project, {name: parts}, work, out)


def _write_bundle(project: Project, built: Built, chosen: tuple[str, ...], work: Path, out: Path) -> None:
    """The offline bundle, and a list of parts for each installation that is made of it."""
    offline.fetch_wheels(project.root, chosen, work / "wheels")
    wheels = offline.wheels_by_name(work / "wheels")
    listed = licences.read_list(project.root / locks.FOLDER / licences.FILE)
    if problems := list(licences.differing(listed, map(offline.metadata_of, wheels.values()))):
        raise Refused("\n".join(problems))
    sets = {lock: (locks.DEPLOYED[lock], offline.chosen_pins(_pins(project, lock))) for lock in chosen}
    offline.write_bundle(project, built.wheel, wheels, sets, out)
    hashes = {name: digest(path) for name, path in {**wheels, project.name: built.wheel}.items()}
    for lock, (extras, pins) in sets.items():
        parts = list_parts(project, pins, listed, extras=extras, hashes=hashes)
        (out / f"{project.name}-{project.version}-{lock}.cdx.json").write_bytes(parts)


def _pins(project: Project, lock: str) -> tuple[locks.Pin, ...]:
    return locks.read_lock(project.root / locks.FOLDER / f"{lock}.txt")


def main() -> None:
    """Make the release, and say what it has."""
    parser = argparse.ArgumentParser(prog="python -m release", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--key", required=True, help="the key of OpenSSH that signs; a public one if an agent has it")
    parser.add_argument("--out", type=Path, default=locks.ROOT / "dist", help="default: dist")
    parser.add_argument("--bundle", default="aggregator,trainer", help="locks of the offline bundle; '' for no bundle")
    parser.add_argument("--site", type=Path, help="folder of the built documents")
    arguments = parser.parse_args()
    if not arguments.key:
        sys.exit("name the key that signs: make release KEY=~/.ssh/id_ed25519")
    bundle = tuple(filter(None, arguments.bundle.split(",")))
    if unknown := set(bundle) - locks.DEPLOYED.keys():
        sys.exit(f"there is no lock {', '.join(sorted(unknown))}: choose of {', '.join(locks.DEPLOYED)}")
    try:
        folder, fingerprint = make_release(
            locks.ROOT, Path(arguments.key).expanduser(), arguments.out, bundle=bundle, site=arguments.site
        )
    except Refused as refusal:
        sys.exit(f"no release: {refusal}")
    for path in sorted(folder.iterdir()):
        print(f"{path.stat().st_size:>13,}  {path.name}")
    print(f"{folder}, signed by {fingerprint}")


if __name__ == "__main__":
    main()
