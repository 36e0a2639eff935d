"""Sweeps of hyper-parameters: points of a grid or of a study, trained and chosen by validation images.

Read in this order: `section` (what the file says), `records` (trials and choices), `choosing`, `proposals`, `point_check`
(what must be right before a trial), `study` (which point is next, and which is best), `search` (training them) and `tables`
(what was chosen, in the report).
"""
