"""Methods x seeds x data sets from one file, side by side: `fedplcc compare`.

Read in this order: `file` (what a person writes), `plan` (the cells that it means), `running` (training them),
`reading` (what their folders hold), `outcomes` (numbers over rounds and seeds), `report` (what is told of them, of which
each part has a module of its own), `writing` (the files).
"""
