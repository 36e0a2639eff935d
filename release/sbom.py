"""Lists of parts in CycloneDX 1.6 (ECMA-424): of what a wheel leads to, and of what one installation has.

The same commit gives the same bytes: the serial number follows from what is listed, the time is the commit's.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version as installed_version

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.model.tool import ToolRepository
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL
from packaging.utils import canonicalize_name

from release.locks import Pin, requirements
from release.project import Project, Refused

NAMES = uuid.UUID("6f1f9d0c-6f0e-5f57-9d0a-6b1f2f4f7a11")
"""Namespace of serial numbers."""
BUILDERS = ("build", "setuptools")
"""Packages whose versions the bytes of a wheel depend on."""


def list_parts(
    project: Project,
    pins: Iterable[Pin],
    licences: Mapping[str, str],
    *,
    extras: Sequence[str] = (),
    hashes: Mapping[str, str] | None = None,
) -> bytes:
    """Return a list of parts as JSON.

    Args:
        project: The commit.
        pins: The parts besides the project itself.
        licences: SPDX expressions by name.
        extras: Extras of one installation; without them parts that only extras need are optional.
        hashes: SHA-256 of the file that each part is installed from, by name.

    Raises:
        Refused: The list does not validate.
    """
    chosen = sorted(pins, key=lambda pin: pin.name)
    own = _component(project.name, project.version, project.table["license"], hashes or {})
    own.description = project.table.get("description")
    own.properties.add(Property(name="fedplcc:commit", value=project.commit))
    bom = Bom(metadata=BomMetaData(timestamp=project.time, component=own, tools=_builders()))
    always = _reached({canonicalize_name(each.name) for each in requirements(project.table, extras)}, chosen)
    components = {project.name: own}
    for pin in chosen:
        components[pin.name] = part = _component(pin.name, pin.version, licences[pin.name], hashes or {})
        part.scope = ComponentScope.REQUIRED if pin.name in always else ComponentScope.OPTIONAL
        if not extras:
            part.properties.add(Property(name="fedplcc:marker", value=pin.marker))
        bom.components.add(part)
    for name, component in components.items():
        needed = [components[pin.name] for pin in chosen if name in pin.needed_by]
        bom.register_dependency(component, needed)
    said = ",".join([project.commit, *extras, *sorted(component.bom_ref.value or "" for component in bom.components)])
    bom.serial_number = uuid.uuid5(NAMES, said)
    text = JsonV1Dot6(bom).output_as_string(indent=1)
    if (problem := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)) is not None:
        raise Refused(f"the list of parts does not validate: {str(problem)[:500]}")
    return f"{text}\n".encode()


def _component(name: str, version: str, licence: str, hashes: Mapping[str, str]) -> Component:
    address = PackageURL("pypi", None, name, version)
    hashed = [HashType(alg=HashAlgorithm.SHA_256, content=hashes[name])] if name in hashes else []
    kind = ComponentType("application" if name == "fedplcc" else "library")
    licences = [LicenseFactory().make_from_string(licence)]
    return Component(
        name=name, version=version, type=kind, purl=address, bom_ref=str(address), licenses=licences, hashes=hashed
    )


def _builders() -> ToolRepository:
    tools = (Component(name=name, version=installed_version(name), type=ComponentType.APPLICATION) for name in BUILDERS)
    return ToolRepository(components=tools)


def _reached(names: set[str], pins: Sequence[Pin]) -> set[str]:
    """Names and whatever they need."""
    reached: set[str] = set()
    while names:
        reached |= names
        names = {pin.name for pin in pins if pin.needed_by & names} - reached
    return reached
