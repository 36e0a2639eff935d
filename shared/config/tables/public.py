"""`[public]`: unlabelled images that every client of a run has, for methods that use them. Pure."""

from __future__ import annotations

from pydantic import Field

from fedplcc.shared.config.sections import Section


class PublicSection(Section):
    """`[public]`"""

    data: str | None = Field(None, min_length=1, max_length=1024)
    """Data specification of unlabelled images that every client has, for a method that learns from them (fcclplus). Labels
    are not looked at. A deployed trainer reads them where its owner says: --public-data. None if not set."""
    num_images: int = Field(5000, ge=2, le=100_000)
    """Number of its training images that are used, the same ones at every client."""
