"""The description of a calibrated model: a file beside it that says of which run it is and what its statistics are of.

`site.safetensors` has its description in `site.safetensors.json`, so that both can lie anywhere together.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, JsonValue

from fedplcc.runs.atomic_file import atomic_file
from fedplcc.shared.config.sections import Section, check_keys, validate
from fedplcc.shared.errors import InvalidConfig, StoreUnavailable
from fedplcc.terminal.printable import printable

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Description(Section):
    """What is known of a calibrated model."""

    run_id: str | None = Field(None, max_length=256)
    """Its run, if known."""
    round: int | None = Field(None, ge=0)
    """The round of the run that its weights are of, if known."""
    method: str = Field(max_length=128)
    """The run's method."""
    config: dict[str, JsonValue]
    """The run's configuration."""
    model_sha256: Digest
    """Of the calibrated model's file."""
    run_model_sha256: Digest
    """Of the run's model, which has the same weights."""
    prototypes_sha256: Digest | None = None
    """Of the file of prototypes that belongs to it."""
    calibrated_on: str
    """Data specification of the images that the statistics are of."""
    num_images: int = Field(ge=1)
    """Number of these images."""

    @property
    def facts(self) -> dict[str, Any]:
        """What is said of its statistics, for programs."""
        return {
            "calibrated_on": self.calibrated_on,
            "calibration_images": self.num_images,
            "run_model_sha256": self.run_model_sha256,
        }

    @property
    def sentence(self) -> str:
        """What its statistics are of."""
        return f"statistics of {printable(self.calibrated_on)}"


def description_file(model: Path) -> Path:
    """Return the place of a model's description."""
    return model.with_name(f"{model.name}.json")


def read_description(model: Path) -> Description | None:
    """Return the description beside a model; None where there is none, as beside a run's own model.

    Raises:
        InvalidConfig: The file beside it is no description.
        StoreUnavailable: It cannot be read.
    """
    path = description_file(model)
    try:
        values = json.loads(path.read_bytes())
        check_keys(values, Description, "")
        return validate(Description, values, "")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreUnavailable(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise InvalidConfig(f"{path} does not describe a calibrated model: it is not JSON") from error
    except InvalidConfig as error:
        raise InvalidConfig(f"{path} does not describe a calibrated model: {error.detail}") from error


def write_description(model: Path, description: Description) -> None:
    """Write the description beside a model.

    Raises:
        StoreUnavailable: It cannot be written.
    """
    with atomic_file(description_file(model)) as file:
        file.write((json.dumps(description.model_dump(), sort_keys=True, indent=2, allow_nan=False) + "\n").encode())
