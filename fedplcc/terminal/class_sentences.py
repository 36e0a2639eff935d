"""Sentences on sites whose classes are not the run's, or have few images, or whose test images others train on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from operator import itemgetter
from unicodedata import normalize

from fedplcc.shared.scoring.scores import FEW_IMAGES
from fedplcc.terminal.names import named_few

MOST_SENTENCES = 5


def class_sentences(
    counts: Mapping[str, Mapping[str, int]],
    classes: Sequence[str],
    *,
    key: str = "data.classes",
    fewest: int = FEW_IMAGES,
) -> list[str]:
    """Return sentences on a class that a site has and the run has not, that it lacks, and of which it has few images.

    Args:
        counts: Training images of each class by site; empty of one that does not say, all 0 of one that evaluates only.
        fewest: Training images of a class below which a site has few.
    """
    known = {normalize("NFC", name): name for name in classes}
    of_client = {client: {normalize("NFC", name): count for name, count in counts[client].items()} for client in counts}
    holders = Counter(place for own in of_client.values() for place in own)
    # Of three or more, one that has what no other has is the one to ask, not all the others.
    lone = {place for place, number in holders.items() if number == 1 and sum(map(bool, of_client.values())) > 2}
    found = list[tuple[int, str]]()
    for client, own in sorted(of_client.items()):
        found += _of_client(f"client {client} has", own, known, lone, key, fewest)
    said = [sentence for _, sentence in sorted(found, key=itemgetter(0))]
    return _few(said)


def _of_client(
    who: str, own: Mapping[str, int], known: Mapping[str, str], lone: Collection[str], key: str, fewest: int
) -> Iterator[tuple[int, str]]:
    """Yield sentences, each with its rank: who will refuse the run comes first."""
    if not own:
        yield 1, f"{who} not said which classes it has"
    if strange := [name for name in sorted(own) if name not in known]:
        yield 0, f"{who} {named_few(map(repr, strange))}, which {key} does not name; its trainer will refuse"
    if alone := [name for place, name in known.items() if place in own and place in lone]:
        yield 0, f"{who} {named_few(map(repr, alone))}, which no other client has; see that it is spelt as theirs"
    if own and (missing := [name for place, name in known.items() if place not in own and place not in lone]):
        yield 1, f"{who} no {named_few(map(repr, missing))}; see that its classes are spelt as the others'"
    trains = any(own.values())
    if empty := [name for place, name in known.items() if trains and own.get(place) == 0]:
        yield 2, f"{who} no training image of {named_few(map(repr, empty))}"
    if few := [f"{name!r} ({own[place]})" for place, name in known.items() if 0 < own.get(place, 0) < fewest]:
        yield 3, f"{who} fewer than {fewest} training images of {named_few(few)}"


def copies_sentences(trained: Mapping[str, Collection[str]], tested: Mapping[str, Collection[str]]) -> list[str]:
    """Return a sentence on each client whose test images another one trains on.

    Args:
        tested: Digests of each client's test images.
    """
    owners: dict[str, set[str]] = {}
    for name, digests in trained.items():
        for digest in digests:
            owners.setdefault(digest, set()).add(name)
    said = []
    for name, digests in tested.items():
        others = [found for digest in digests if (found := owners.get(digest, set()) - {name})]
        if others:
            of = named_few(sorted(set().union(*others)))
            said.append(
                f"{len(others)} test images of client {name} are training images of {of}: the accuracy on them says nothing "
                "of new images"
            )
    return _few(said)


def _few(said: Sequence[str]) -> list[str]:
    more = len(said) - MOST_SENTENCES
    return [*said[:MOST_SENTENCES], *([f"and {more} more sentences like these"] if more > 0 else [])]
