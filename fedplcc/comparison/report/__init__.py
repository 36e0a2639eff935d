"""The report of a comparison: its parts, their tables and drawings, and the files that it is written to.

`parts` puts it together of `tables`, `stage_tables`, `candidates`, `uncertainty` (by `inference`), `drawings`,
`accuracy_maps` and `heat_map`; `document` makes Markdown and HTML of it, `writing` all files.
"""
