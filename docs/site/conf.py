"""Sphinx's configuration. `make docs` builds the site; every Markdown file of the repository is a page at its own path.

The source folder is the repository's root, so a relative link means the same on a code host and in the site: a link to
another document leads to its page, a link to any other file to a copy of the file.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from pygments.lexers.special import TextLexer  # noqa: E402
from sphinx.highlighting import lexers  # noqa: E402

from docs.site.citations import NOT_OURS  # noqa: E402
from fedplcc.shared.version import VERSION  # noqa: E402

project = "fedplcc"
release = version = VERSION
root_doc = "docs/index"
extensions = [
    "myst_parser",
    "sphinx.ext.viewcode",
    "docs.site.mathml",
    "docs.site.links",
    "docs.site.docstrings",
]

include_patterns = ["**.md"]
exclude_patterns = [
    ".*",
    "experiments/*/*",  # git keeps no report there
    *sorted(NOT_OURS),
    *(
        f"fedplcc/{name}/**" for name in ("aggregator", "deployment", "gateway", "shared", "trainer")
    ),  # links to folders that are read
]
highlight_language = "text"

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
suppress_warnings = [
    "myst.header",  # the fragments of a record may begin at any level
    "ref.python",  # two classes of one name: the link leads to one of them
]

autodoc_typehints = "signature"
python_maximum_signature_line_length = 100
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "exclude-members": "model_config"}
autodoc_preserve_defaults = True
default_role = "literal"
python_use_unqualified_type_names = True
# Names of other projects and aliases of types have no page here; a wrong name of our own does not build.
nitpick_ignore_regex = [
    # Limits within annotated types, which the page of the configuration has in words.
    (
        r"py:.*",
        r"(ge|gt|le|lt|func|annotation|required|metadata)=.*|Ge|Le|Field(Info)?|Annotated.*|tuple\[.*|.*\._known_partition",
    ),
    (
        r"py:.*",
        r"(numpy|np|npt|torch|nn|pydantic|pydantic_core|collections|typing|pathlib|os|enum|annotated_types|datetime|pandas)\..*",
    ),
    (
        r"py:class",
        r"Figure|(.*\.)?Row|(.*\.)?PartKind|IntArray|Pixels|Window|Reader|AutoWindow|OnRound|ConfigSource|Rate|Momentum|Count|[0-9.e+-]+",
    ),
    # Records that the pages of the configuration, the API and the results have in words.
    (
        r"py:.*",
        r"fedplcc\.shared\.(config\.run_tables|config\.run|documents)\..*|fedplcc\.(comparison\.reading|runs\.artifacts|gateway_client)\..*",
    ),
]

lexers |= {"mermaid": TextLexer(), "nft": TextLexer(), "haproxy": TextLexer()}

html_title = f"fedplcc {VERSION}"
html_theme = "furo"
html_math_renderer = "mathml"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_additional_pages = {"index": "redirect.html"}
templates_path = ["templates"]
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
