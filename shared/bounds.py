"""Bounds of the numbers and names that others send. A number beyond its bound is refused, as are NaN and infinity."""

from __future__ import annotations

import math
import re

METHOD_NAME = re.compile(r"(?=.{1,128}\Z)[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
"""Form of a method's name: one of fedplcc's, the dotted name of a module, or an entry point's name."""
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
"""Client ids, domains, run names and names in certificates."""
RUN_ID_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"
"""Ids of runs."""
MODEL_KIND = re.compile(r"(?=.{1,160}\Z)[A-Za-z_][\w.:-]*( [a-z0-9]+)?", re.ASCII)
"""Form of a client's own kind of model: the model's name, with its normalisation, and its stem if it has stems."""
MODEL_KIND_RULE = (
    "a kind of model is a name of letters, digits, '.', '_', ':' or '-', and a stem; at most 160 characters"
)
SUBSET_RULE = "set at most one of 'samples_per_class' and 'fraction': both are the size of the training subset"
TAG_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._:/=-]{0,39}$"
"""Tags of runs."""
MAX_DISPLAY_NAME = 64
"""Most characters of a client's name for people."""
DISPLAY_NAME_RULE = f"a name has at most {MAX_DISPLAY_NAME} characters, all visible, and no space at its ends"
MAX_TAGS = 16
"""Most tags of a run, and of a filter."""
MAX_NOTES = 4000
"""Most characters of a run's notes."""
MAX_SEARCHED = 128
"""Most characters of a part of a run's name or id that is searched for: the length of an id."""
MAX_FORGOTTEN_RUNS = 256
"""Most runs that an answer to Join names as those that are to forget the client."""
MAX_VALUE = 3.4028234663852886e38
"""Largest magnitude of a named number (a loss, a measured time, a scalar, a reading): the largest float32, in which trainers
compute. A sum over any number of clients, each times `MAX_EXAMPLES`, is finite in float64."""
MAX_CONFUSED_CLASSES = 64
"""Most classes of a run whose reports have confusion matrices or histograms."""
SCORE_BINS = 256
"""Bins of a histogram of a class's probabilities in a report."""
CONFIDENCE_BINS = 120
"""Bins of a histogram of largest probabilities in a report."""
MAX_REFUSALS = 1_000_000
"""Most refused requests in one report of a gateway; it counts no further while it waits for the aggregator."""
MAX_SIDE = 1_000_000
"""Longest side of an image that a client tells, in pixels."""
MAX_EXAMPLES = 2**29
"""Most samples of a client, of an update or of an evaluation set: products of counts up to here with float32 values are
exact in float64."""
MAX_FEATURES = 2**24
"""Largest feature size D of a model."""


def is_bounded(value: float) -> bool:
    """Whether a named number is finite and at most `MAX_VALUE` in magnitude."""
    return math.isfinite(value) and abs(value) <= MAX_VALUE


def is_display_name(text: str) -> bool:
    """Whether a text can stand for a client where people read: any letters, at most `MAX_DISPLAY_NAME`, none invisible.

    The two joiners that some scripts write with are allowed. Characters that turn the direction of what follows are not.
    """
    shown = text.replace("\u200c", "").replace("\u200d", "")
    return len(text) <= MAX_DISPLAY_NAME and shown.isprintable() and text == text.strip() and bool(shown) == bool(text)
