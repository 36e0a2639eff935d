"""The trainer's first start: it joins the federation by an invitation in the environment or in a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from fedplcc.shared.config.settings import INVITATION, invitation_in_environment
from fedplcc.shared.config.settings.site_identity import own_folder
from fedplcc.shared.identity.credentials import IDENTITY_FILE


def join_if_invited(values: Mapping[str, Any]) -> None:
    """Join the federation, unless the trainer has an identity, speaks plain text, or nobody invited it.

    An invitation is used once: with an identity in the state directory none is looked at.

    Args:
        values: The settings that were given, by name, not validated yet: what is missing may follow from the identity.

    Raises:
        InvalidConfig: The invitation cannot be read, or the aggregator does not admit by it.
    """
    folder, file = own_folder(values), Path(values.get("join_file") or "")
    if _is_insecure(values) or (folder / IDENTITY_FILE).is_file():
        return
    from fedplcc.shared.wire.enrolling.joining import invitation_in, join_by

    http_proxy = str(values.get("http_proxy") or "")
    if text := invitation_in_environment():
        join_by(text, folder, source=INVITATION, http_proxy=http_proxy)
    elif file.is_file():
        join_by(invitation_in(file), folder, source=str(file), http_proxy=http_proxy)


def _is_insecure(values: Mapping[str, Any]) -> bool:
    try:
        return TypeAdapter(bool).validate_python(values.get("insecure", False))
    except ValidationError:
        return True  # the settings refuse it
