"""Strict validation of the tables that people write, with helpful error sentences.

An unknown key is told with its place in another section, or with the nearest known key; a value out of range with its key,
its value and the range.
"""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, TypeAlias, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from fedplcc.shared.bounds import DISPLAY_NAME_RULE, NAME_PATTERN, is_display_name
from fedplcc.shared.errors import InvalidConfig

FACTORY = re.compile(r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")
"""`package.module:factory`."""
_KIND = re.compile(r"\.(bool|float|literal\[.*\]|tuple\[.*\])(?=(\.\d+)?$)")
_FORMS: dict[str, str] = {}


def form(pattern: str, words: str) -> str:
    """Return a field's pattern, of which errors have the words in its place."""
    _FORMS[pattern] = words
    return pattern


ABOUT_NAMES = "a name is up to 64 letters, digits, '.', '_' or '-', and begins with a letter or a digit"
Name = Annotated[str, Field(pattern=form(NAME_PATTERN, ABOUT_NAMES))]


def _display_name(text: str) -> str:
    if not is_display_name(text):
        raise ValueError(DISPLAY_NAME_RULE)
    return text


DisplayName = Annotated[str, AfterValidator(_display_name)]
"""Name for people in any letters; empty for none."""

MAX_FILE_BYTES = 16 << 20
"""Most bytes of a file of tables."""
MAX_SAID = 20
"""Most problems that one error says."""
MAX_QUOTED = 200
"""Most characters of a key or a value in a sentence."""

Model = TypeVar("Model", bound=BaseModel)
Places: TypeAlias = Mapping[str, Sequence[str]]
"""Dotted keys by their last part."""
NOWHERE: Places = MappingProxyType({})


class Section(BaseModel):
    """Table of a configuration."""

    # Strict: `rounds = true` or "30" is reported as a mistake, not read as 1 or 30. Only lists are accepted as tuples.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=True)


class InvalidKey(ValueError):
    """Problem of several keys together, reported at one of them."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key
        """Key within the validated table."""


PLAIN: Mapping[str, str] = {
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "write a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "write a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "write true or false"),
    "string_type": "write a text",
    "finite_number": "write a finite number",
    "greater_than_equal": "it must be at least {ge}",
    "greater_than": "it must be more than {gt}",
    "less_than_equal": "it must be at most {le}",
    "less_than": "it must be less than {lt}",
}
"""What is expected, by pydantic's type of a problem."""


def validate(kind: type[Model], values: Any, prefix: str) -> Model:
    """Return the validated record.

    Args:
        prefix: Prefix of the table's keys in messages: "partition.".

    Raises:
        InvalidConfig: With a sentence for each of the first `MAX_SAID` problems.
    """
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise InvalidConfig("; ".join(explain(problem, prefix) for problem in problems_of(error)[:MAX_SAID])) from error


def problems_of(error: ValidationError) -> list[Any]:
    """Return the problems to say: that a list is too short is none where its entries are wrong, which were not counted."""
    found = error.errors()
    of_entries = {problem["loc"][:-1] for problem in found}
    return [each for each in found if each["type"] != "too_short" or each["loc"] not in of_entries]


def key_of(place: Iterable[str | int], prefix: str) -> str:
    """Return the key in a place of pydantic's, which also names the kind of a value that may be of several."""
    return _KIND.sub("", prefix + ".".join(map(str, place))).rstrip(".")


def explain(problem: Any, prefix: str = "") -> str:
    """Return a sentence for one problem that pydantic found: key, value, and the expectation."""
    key = key_of(problem["loc"], prefix)
    if problem["type"] == "missing":
        return f"{key} is missing"
    if problem["type"] in ("too_short", "too_long"):
        return f"{key} {_of_length(problem['type'], problem['ctx'])}"
    message = _plain(problem)
    if not key:
        return message  # concerns the whole table; the message names the keys
    value = problem.get("input")
    if isinstance(value, (str, int, float, bool)) or value is None:
        return f"{key} = {quoted(value)}: {message}"
    return f"{key}: {message}"


def _plain(problem: Any) -> str:
    """Return what is expected in words for people."""
    said = PLAIN.get(problem["type"])
    if problem["type"] == "string_pattern_mismatch" and (words := _FORMS.get(problem["ctx"]["pattern"])):
        return words
    if said is not None:
        bounds = {name: int(bound) if bound == int(bound) else bound for name, bound in _bounds(problem)}
        return said.format_map(bounds)
    message = str(problem["msg"]).removeprefix("Value error, ").replace("a valid tuple", "a list")
    message = message[:1].lower() + message[1:]
    return re.sub("^input should be ", "it must be ", message)


def _bounds(problem: Any) -> Iterator[tuple[str, float]]:
    context = problem.get("ctx") or {}
    return ((name, context[name]) for name in ("ge", "gt", "le", "lt") if name in context)


def _of_length(kind: str, context: Mapping[str, Any]) -> str:
    """Return the sentence's end for a list with too few or too many entries."""
    if kind == "too_short":
        bound, said = context["min_length"], "needs at least"
    else:
        bound, said = context["max_length"], "takes at most"
    found = context["actual_length"]
    return f"{said} {bound} {'entry' if bound == 1 else 'entries'}" + ("" if found is None else f", not {found}")


def check_keys(table: Any, kind: type[BaseModel], prefix: str, places: Places = NOWHERE) -> None:
    """Refuse unknown keys of a table and of the sections within it, of a document whose keys have these places.

    Raises:
        InvalidConfig: The value is no table, or a key is unknown.
    """
    if not isinstance(table, Mapping):
        raise InvalidConfig(f"{prefix.rstrip('.')} is a table of keys, not {quoted(table)}")
    for key, value in table.items():
        if key not in kind.model_fields and has_any_key(kind):
            continue
        if key not in kind.model_fields:
            raise InvalidConfig(unknown("key", str(key), kind.model_fields, prefix, places))
        within = section_of(kind.model_fields[key].annotation)
        if within is not None and value is not None:
            check_keys(value, within, f"{prefix}{key}.", places)


def has_any_key(kind: type[BaseModel]) -> bool:
    """Whether a table's keys are names that people choose."""
    return kind.model_config.get("extra") == "allow"


def section_of(annotation: Any) -> type[Section] | None:
    """Return the class of a key that is a table with keys of its own, also where it may be None; None for other keys."""
    for kind in (annotation, *get_args(annotation)):
        if isinstance(kind, type) and issubclass(kind, Section):
            return kind
    return None


def dotted_keys(kind: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the last part and the whole of each key of a table and of the sections within it."""
    for key, field in kind.model_fields.items():
        within = section_of(field.annotation)
        if within is None:
            yield key, prefix + key
        else:
            yield from dotted_keys(within, f"{prefix}{key}.")


def unknown(what: str, name: str, known: Iterable[str], prefix: str = "", places: Places = NOWHERE) -> str:
    """Return the sentence for an unknown name, with its other places, or else with the nearest known name.

    Args:
        prefix: Written before each name, and not compared.
        places: Where such names are known elsewhere.
    """
    names, name = sorted(known), shortened(name)
    if name in places:
        return f"unknown {what} {prefix + name!r}; did you mean {' or '.join(map(repr, places[name]))}?"
    nearest = nearest_of(name, names)
    known_names = ", ".join(prefix + known_name for known_name in names)
    hint = f"known: {known_names}" if nearest is None else f"did you mean {prefix + nearest!r}?"
    return f"unknown {what} {prefix + name!r}; {hint}"


def nearest_of(name: str, known: Sequence[str]) -> str | None:
    """Return the known name that an unknown one is nearly; None where it is like none of them."""
    return next(iter(difflib.get_close_matches(shortened(name), known, n=1, cutoff=0.5)), None)


def shortened(text: str) -> str:
    """Return a text with at most `MAX_QUOTED` characters."""
    return text if len(text) <= MAX_QUOTED else f"{text[:MAX_QUOTED]}..."


def quoted(value: Any) -> str:
    """Return the beginning of a value's JSON, for a sentence."""
    if isinstance(value, str):
        return json.dumps(shortened(value))
    if isinstance(value, Mapping | list | tuple):
        return f"a {'table' if isinstance(value, Mapping) else 'list'} of {len(value)}"
    return shortened(json.dumps(value, default=str))


def read_document(path: Path) -> dict[str, Any]:
    """Return the unchecked tables of a TOML file.

    Raises:
        InvalidConfig: The file cannot be read, is not UTF-8 text or is not TOML.
    """
    try:
        with path.open("rb") as file:  # a pipe is fine, as of `--config /dev/stdin`
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise InvalidConfig(f"{path} has more than {MAX_FILE_BYTES:,} bytes: it is no configuration")
        return tomllib.loads(data.decode("utf-8-sig"))
    except OSError as error:
        raise InvalidConfig(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InvalidConfig(f"{path} is not UTF-8 text; save it as UTF-8") from error
    except (
        ValueError,
        RecursionError,
    ) as error:  # not TOML's own for a number of 5,000 digits, or lists in 1,000 lists
        raise InvalidConfig(f"{path} is not TOML: {error}") from error
