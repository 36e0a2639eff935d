"""Comparison of methods over seeds and data sets from one file: `fedplcc compare`.

Read in this order: `file` (the comparison's file), `plan` (its cells), `training`, `reading` (the files of trained cells),
`outcomes` (numbers over rounds and seeds) and `report` (the report of them).
`sweep` chooses hyper-parameters before the cells are trained.
"""
