"""The policy of a site's owner: a TOML file that says which runs the site takes part in and what may leave it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from fedplcc.shared.config.sections import validate
from fedplcc.shared.errors import InvalidConfig

MAX_POLICY_BYTES = 256 << 10
"""Most bytes of a policy's file."""


class Policy(BaseModel):
    """A site's policy; a key that is not given forbids nothing.

    Attributes:
        approve: Whose yes a run needs here: `each` run is approved by the owner; `matching` runs, which ask for no more
            than one that the owner approved, need no second yes; `always` means that the policy is the owner's yes.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    approve: Literal["each", "matching", "always"] = "each"


def read_policy(path: Path) -> Policy:
    """Read a policy's file.

    Raises:
        InvalidConfig: It cannot be read, is too large, or says something that no policy says.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_POLICY_BYTES + 1)
        if len(data) > MAX_POLICY_BYTES:
            raise InvalidConfig(f"the policy {path} has more than {MAX_POLICY_BYTES} bytes")
        document = tomllib.loads(data.decode())
    except OSError as error:
        raise InvalidConfig(f"cannot read the policy {path}: {error.strerror or error}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidConfig(f"the policy {path} is not TOML: {error}") from error
    try:
        return validate(Policy, document, "")
    except InvalidConfig as error:
        raise InvalidConfig(f"the policy {path}: {error.detail}") from error
