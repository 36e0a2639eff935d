"""The description of a model that was adapted to a site: a file beside it that says of which run it is and to what.

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
from fedplcc.shared.process.disk import read_regular
from fedplcc.terminal.printable import printable

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Description(Section):
    """What is known of a model that was adapted to a site."""

    run_id: str | None = Field(None, max_length=256)
    """Its run, if known."""
    round: int | None = Field(None, ge=0)
    """The round of the run that its weights are of, if known."""
    method: str = Field(max_length=128)
    """The run's method."""
    config: dict[str, JsonValue]
    """The run's configuration."""
    model_sha256: Digest
    """Of the adapted model's file."""
    run_model_sha256: Digest
    """Of the run's model, which has the same weights."""
    prototypes_sha256: Digest | None = None
    """Of the file of prototypes that belongs to it."""
    calibrated_on: str | None = None
    """Data specification of the images that its BatchNorm statistics are of; None for those of training."""
    num_images: int | None = Field(None, ge=1)
    """Number of these images."""
    temperature: float | None = Field(None, gt=0)
    """What its logits are divided by before probabilities are made of them; 1 if not set."""
    temperature_of: str | None = None
    """Data specification of the validation images that `temperature` was fitted to."""
    temperature_images: int | None = Field(None, ge=1)
    """Number of these images."""

    @property
    def facts(self) -> dict[str, Any]:
        """What is said of its statistics and its temperature, for programs."""
        found: dict[str, Any] = {"run_model_sha256": self.run_model_sha256}
        if self.calibrated_on is not None:
            found |= {"calibrated_on": self.calibrated_on, "calibration_images": self.num_images}
        if self.temperature is not None:
            found |= {
                "temperature": self.temperature,
                "temperature_of": self.temperature_of,
                "temperature_images": self.temperature_images,
            }
        return found

    @property
    def sentence(self) -> str:
        """What it was adapted to."""
        parts = [] if self.calibrated_on is None else [f"statistics of {printable(self.calibrated_on)}"]
        if self.temperature is not None:
            parts.append(f"temperature {self.temperature:.3g} of {printable(self.temperature_of or '')}")
        return ", ".join(parts)


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
    if not path.is_file():
        return None
    try:
        values = json.loads(read_regular(path))
        check_keys(values, Description, "")
        return validate(Description, values, "")
    except OSError as error:
        raise StoreUnavailable(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise InvalidConfig(f"{path} does not describe an adapted model: it is not JSON") from error
    except InvalidConfig as error:
        raise InvalidConfig(f"{path} does not describe an adapted model: {error.detail}") from error


def write_description(model: Path, description: Description) -> None:
    """Write the description beside a model.

    Raises:
        StoreUnavailable: It cannot be written.
    """
    with atomic_file(description_file(model)) as file:
        file.write((json.dumps(description.model_dump(), sort_keys=True, indent=2, allow_nan=False) + "\n").encode())
