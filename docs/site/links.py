"""Links to folders: to the page of the folder's README, or plain text where it has none.

A code host shows a folder; a site has no page for it. MyST itself resolves links to documents and to files, and warns of
targets that are not there.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform


class FolderLinks(SphinxTransform):
    """Replaces the links of one document that name a folder."""

    default_priority = 5  # before links are resolved

    def apply(self, **kwargs: Any) -> None:
        """Replace them."""
        root = Path(self.env.srcdir)
        here = Path(self.env.doc2path(self.env.docname)).parent
        for link in list(self.document.findall(addnodes.pending_xref)):
            folder = here / str(link.get("reftarget", ""))
            if link.get("reftype") != "myst" or not folder.is_dir():
                continue
            readme = folder / "README.md"
            if readme.is_file():
                link["refdomain"], link["reftype"] = "doc", "doc"
                link["reftarget"] = "/" + os.path.relpath(readme.with_suffix(""), root)
            else:
                link.replace_self(nodes.inline("", "", *link.children))


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the transform."""
    app.add_transform(FolderLinks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
