"""`fedplcc config init`: a configuration to start from, for the digits, for local data, or for a gateway's clients."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedplcc.command import completion
from fedplcc.command.examples import examples
from fedplcc.command.exit_codes import explains_errors, say
from fedplcc.command.gateway_calls import ask_gateway
from fedplcc.command.shared_options import Way
from fedplcc.shared.errors import InvalidConfig, InvalidData
from fedplcc.terminal.class_sentences import class_sentences
from fedplcc.terminal.names import named_few

if TYPE_CHECKING:
    from fedplcc.shared.documents import Client

CLIENT = "{client}"
"""Placeholder for a client's name in a data specification."""
PUBLIC_IMAGES = {"data": "digits:synth", "num_images": 1000}
"""Public images for a method that needs some: they need no download."""
NAMED_DATA = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,63})=(.+)", re.DOTALL)
"""NAME=SPEC. No specification has this form: before its first = there is a colon or a bracket."""
EXAMPLES = examples(
    "fedplcc config init",
    "fedplcc config init --comparison few.toml --method fedavg --method moon",
    "fedplcc config init --policy north.toml",
)


@explains_errors
def init(
    *,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE", help="Where to write it; run.toml if not given. Nothing is overwritten.", dir_okay=False
        ),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="Method of the run, with its paper's settings; the recipe's if not given. With --comparison a method of "
            "a row, repeatable.",
            autocompletion=completion.methods,
        ),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            help="Tables to begin with; those for the images if not given. photos: features of a trained net and a head "
            "in two rounds; photos-steps: a head that any method trains; small-images: a small net from nothing.",
            metavar="NAME",
        ),
    ] = None,
    clients: Annotated[
        str | None,
        typer.Option(
            help="Names of the clients with commas between; four domains of digits if not given.", metavar="A,B,..."
        ),
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option(
            help="Names of the classes with commas between; those of the data or of the gateway's clients if not given.",
            metavar="X,Y,...",
        ),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Data of one client, repeatable; or one specification for all --clients, with {CLIENT} for the name "
            f"(folder:data/{CLIENT} if not given).",
            metavar="NAME=SPEC|SPEC",
        ),
    ] = None,
    comparison: Annotated[
        bool,
        typer.Option(
            "--comparison", help="Write the file of a comparison, for fedplcc compare; compare.toml if no FILE."
        ),
    ] = False,
    dataset: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="CONFIG",
            help="With --comparison: configuration of a run with its clients, a data set; repeatable. The run.toml beside "
            "FILE if not given; without one, digits of four domains are written there.",
            dir_okay=False,
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(help="With --comparison: seeds, from 0; 2 if not given.", min=1, max=1000),
    ] = None,
    policy: Annotated[
        bool,
        typer.Option(
            "--policy", help="Write the policy of a site's owner, for fedplcc trainer --policy; policy.toml if no FILE."
        ),
    ] = False,
    full: Annotated[
        bool,
        typer.Option(
            "--full", help="Write every key with its value, range and meaning; else those that people change."
        ),
    ] = False,
    way: Way,
) -> None:
    """Write a configuration to start from.

    Without options it trains on digits of four domains that need no download, so it can be simulated as it is. With --data
    the data are opened for their classes, as a trainer opens them. With --gateway the clients are those that are connected,
    or those of --clients; the run starts once all of them are there. Images get the recipe for them. With --policy
    every key of a policy is explained, and none but `approve` is in force.
    """
    from fedplcc.runs.atomic_file import write_new
    from fedplcc.runs.backbone_digests import lacks_weights, with_digests
    from fedplcc.runs.configuration import DEFAULT_FILE
    from fedplcc.runs.configuration_text import short_template, template
    from fedplcc.shared.config.recipes import AT_SITES, KEEP_WEIGHTS, of_method, with_recipe
    from fedplcc.shared.config.run import parse_federation
    from fedplcc.shared.methods import METHODS

    if policy:
        from fedplcc.command.files.policy import DEFAULT, init_policy

        if any((method, recipe, clients, classes, data, comparison, dataset, seeds, full, way.is_named)):
            raise InvalidConfig("--policy takes a FILE alone: leave out the others")
        return init_policy(file or DEFAULT)
    if comparison:
        from fedplcc.command.files.comparison_init import SEEDS, init_comparison

        if recipe or clients or classes or data or full or way.is_named:
            raise InvalidConfig("--comparison takes --dataset, --method and --seeds: leave out the others")
        return init_comparison(file, dataset or [], method or [], seeds=seeds or SEEDS)
    if dataset or seeds is not None or len(method or []) > 1:
        raise InvalidConfig("--dataset, --seeds and several --method are of a comparison: give --comparison too")
    gateway, chosen = way.url if way.is_named else None, method[0] if method else None
    file = file or DEFAULT_FILE
    names, class_names, named = _names(clients), _names(classes), _named_data(data or [])
    seen: Seen | None = None
    if gateway is not None:
        if data:
            raise InvalidConfig("give --gateway or --data: clients that have joined keep their data to themselves")
        joined = ask_gateway(way, lambda there: there.all_clients())
        document, notes, seen = _of_joined(joined, names, gateway, class_names)
    elif named:
        document, notes = _of_data(named, names, class_names)
    elif names or class_names or data:
        document, notes = _of_names(names, class_names, data[0] if data else None)
    else:
        document, notes = _of_demo(chosen, recipe), []
    if recipe is None and "method" not in document["run"]:
        seen = _seen(document) if data else seen
        recipe, why = _for_images(seen, chosen)
        notes = [*notes, *why]
    document["run"] = {"name": file.stem, **document["run"]} | ({"method": chosen} if chosen else {})
    if recipe is not None:
        document = with_recipe(document, recipe)
    document = with_digests(document)
    if gateway is None and lacks_weights(document):
        notes = [*notes, f"this host lacks the weights that the run begins with; keep them first: {KEEP_WEIGHTS}"]
    elif gateway is not None and "weights" in document.get("model", {}):
        notes = [*notes, f"each client's host keeps the weights that the run begins with, once: {KEEP_WEIGHTS}"]
    record = METHODS.get(document["run"]["method"])
    if gateway is not None:
        document["method"] = {**of_method(AT_SITES, document["run"]["method"]), **document.get("method", {})}
    if record is not None and record.uses_public(record.config()):
        document["public"] = PUBLIC_IMAGES
        if data or gateway is not None:
            notes = [*notes, "the public images are digits; name in [public] what every client has"]
    write_new(file, (template if full else short_template)(parse_federation(document)))
    for note in notes:
        say(note)
    print(f"{file} is written; see what it says with: fedplcc config check {file}")


def _names(text: str | None) -> list[str]:
    return [] if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _named_data(data: Sequence[str]) -> dict[str, str]:
    """The specification of each client by name; nothing if there is one specification for all."""
    found = [NAMED_DATA.fullmatch(text) for text in data]
    named = [match.groups() for match in found if match is not None]
    if (named and len(named) < len(data)) or (not named and len(data) > 1):
        raise InvalidConfig("--data: write NAME=SPEC for each client, or one SPEC for all of --clients")
    specs: dict[str, str] = {}
    for name, spec in named:
        if name in specs:
            raise InvalidConfig(f"--data names the client {name!r} twice")
        specs[name] = spec
    return specs


def _of_joined(
    joined: Sequence[Client], wanted: Sequence[str], gateway: str, classes: Sequence[str]
) -> tuple[dict[str, Any], list[str], Seen | None]:
    """Tables of a configuration for clients of a federation, notes for its person, and the smallest of their images."""
    from fedplcc.shared.config.sections import unknown

    known = {client.client_id: client for client in joined}
    if not known:
        raise InvalidConfig(
            f"no client has joined at {gateway} yet; start the trainers first, or name the clients with --clients"
        )
    for name in wanted:
        if name not in known:
            raise InvalidConfig(f"--clients: {unknown('client', name, known)}; it has not joined at {gateway}")
    chosen = [known[name] for name in wanted] or [client for client in joined if client.is_connected]
    if not chosen:
        raise InvalidConfig(
            f"none of the {len(known)} clients that joined at {gateway} is connected now: {named_few(known)}; "
            "name those that will come back with --clients"
        )
    notes = []
    if away := [client.client_id for client in joined if client not in chosen and not client.is_connected]:
        notes.append(
            f"left out, because not connected now: {named_few(away)}; name them with --clients to wait for them"
        )
    if cut := [client.client_id for client in chosen if client.num_classes > len(client.class_counts)]:
        if not classes:
            raise InvalidConfig(
                f"more classes than a gateway lists: {named_few(cut)}; name the run's classes with --classes"
            )
        notes.append(f"more classes than a gateway lists: {named_few(cut)}; not all of them were compared")
    counts = {client.client_id: client.class_counts for client in chosen}
    return (
        {
            "run": {"clients": [client.client_id for client in chosen]},
            "data": {"classes": list(classes) or _union(counts)},
        },
        [*notes, *_about_classes({name: own for name, own in counts.items() if name not in cut}, classes)],
        _seen_by({client.client_id: client.smallest_side for client in chosen}),
    )


def _of_data(
    named: Mapping[str, str], clients: Sequence[str], classes: Sequence[str]
) -> tuple[dict[str, Any], list[str]]:
    """Tables of a configuration for clients with these data, which are opened, and notes for its person."""
    from fedplcc.trainer.data.loading import describe, remarks
    from fedplcc.trainer.data.survey import range_said

    if clients and set(clients) != set(named):
        raise InvalidConfig("--data NAME=SPEC names the clients; leave out --clients")
    counts, problems, said = dict[str, Mapping[str, int]](), list[str](), list[str]()
    for name, spec in named.items():
        try:
            counts[name] = describe(spec)
            said += [f"client {name}: {remark}" for remark in (*remarks(spec), *range_said(spec))]
        except InvalidData as error:
            problems.append(f"--data {name}: {error.detail}")
    if problems:
        raise InvalidData("; ".join(problems))
    return {
        "run": {"clients": sorted(named)},
        "data": {"classes": list(classes) or _union(counts)},
        "clients": {name: {"data": named[name]} for name in sorted(named)},
    }, [*said, *_about_classes(counts, classes)]


@dataclass(frozen=True, slots=True)
class Seen:
    """The smallest image that was looked at: its smaller side in pixels, and the sentence on it."""

    side: int
    why: str


def _seen_by(sides: Mapping[str, int | None]) -> Seen | None:
    """The smallest image of clients whose smallest ones have these sides, and whose it is: one decides for all."""
    if not sides:
        return None
    if silent := [name for name, side in sides.items() if side is None]:
        return Seen(0, f"not every client's images were looked at, not those of {named_few(silent)}")
    side, name = min((side or 0, name) for name, side in sides.items())
    return Seen(side, f"the smallest image that clients looked at has {side} pixels at its smaller side, at {name}")


def _seen(document: Mapping[str, Any]) -> Seen | None:
    """Look at images of the clients' data; None where nobody can."""
    from fedplcc.trainer.data.survey import smallest_of

    smallest = None
    with suppress(InvalidData):  # data whose classes a person names need not be here
        smallest = smallest_of(each["data"] for each in document["clients"].values())
    if smallest is None:
        return None
    height, width = smallest
    return Seen(min(height, width), f"the smallest image that was looked at has {height} x {width} pixels")


def _for_images(seen: Seen | None, method: str | None) -> tuple[str | None, list[str]]:
    """The recipe for the images, and the sentence on it; none for a method that a person names, but on photographs.

    Args:
        seen: The smallest of them, where it is known.
    """
    from fedplcc.shared.config.recipes import PHOTOS, RECIPES, of_photographs, recipe, recipe_for

    taken = recipe_for(None if seen is None else seen.side)
    if method is not None and taken != PHOTOS:
        is_its_own = method == recipe(taken)["run"]["method"]
        said = f"{method} has the settings of its paper; --recipe {taken} has those that validation images chose"
        return None, [said] if is_its_own else []
    if method is not None:
        taken = of_photographs(method)
    why = "not every client's images were looked at" if seen is None else seen.why
    others = " and ".join(name for name in RECIPES if name != taken)
    return taken, [f"--recipe {taken} is taken: {why}; there are {others} too"]


def _of_demo(method: str | None, recipe: str | None) -> dict[str, Any]:
    """The demo's tables; for a recipe its clients and classes alone, for another method what was not chosen for its own."""
    from fedplcc.runs.configuration import demo_file, plain_demo
    from fedplcc.shared.config.run import read_document

    demo = read_document(demo_file())
    if recipe is not None:
        return {"run": {}, "data": {"classes": demo["data"]["classes"]}, "clients": demo["clients"]}
    return demo if method in (None, demo["run"]["method"]) else plain_demo()


def _of_names(clients: list[str], classes: list[str], data: str | None) -> tuple[dict[str, Any], list[str]]:
    """Tables of a configuration for named clients, and notes for its person."""
    clients = clients or ["client"]
    specs = {name: (data or f"folder:data/{CLIENT}").replace(CLIENT, name) for name in clients}
    if not classes and data is None:
        raise InvalidConfig(
            "name the classes with --classes cat,dog, or the data that have them with --data folder:images"
        )
    said = list[str]()
    if not classes:
        from fedplcc.trainer.data.loading import describe, remarks

        classes = _union({spec: describe(spec) for spec in specs.values()})
        said = [f"{spec}: {remark}" for spec in dict.fromkeys(specs.values()) for remark in remarks(spec)]
    return {
        "run": {"clients": clients},
        "data": {"classes": classes},
        "clients": {name: {"data": spec} for name, spec in specs.items()},
    }, said


def _union(counts: Mapping[str, Mapping[str, int]]) -> list[str]:
    return sorted({name for each in counts.values() for name in each})


def _about_classes(counts: Mapping[str, Mapping[str, int]], classes: Sequence[str]) -> list[str]:
    return class_sentences(counts, list(classes) or _union(counts), key="--classes", fewest=0)
