"""A lock around `ast.parse`, which numpy calls for the header of each array that it reads.

CPython before 3.11.8 and 3.12.2 counts the depth of all syntax trees in one place: a tree made while another
thread is half through its own ends in `SystemError: AST constructor recursion depth mismatch`.
"""

from __future__ import annotations

import threading

PARSER_LOCK = threading.Lock()
"""Held by a thread while it parses Python, or has a library do so."""
