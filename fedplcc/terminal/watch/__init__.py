"""The views of `fedplcc run watch`: a full screen on a terminal, lines elsewhere.

`screen.py` and `sections.py` draw a run with rich, `curves.py` draws its curves, `console.py` prepares the terminal;
`live.py` follows a run and redraws the screen, `lines.py` prints lines.
"""
