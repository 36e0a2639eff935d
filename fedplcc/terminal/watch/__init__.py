"""Watching a run on a terminal, as `fedplcc run watch` does.

`watched_run.py` keeps what is known of a run; `glyphs.py` draws curves and bars of characters, `numbers.py` says numbers,
`layout.py` shares out the lines of a screen, `screen.py` is where all is shown, `sections.py` are its parts and `view.py`
puts them together: all of them pure. `live.py` is the shell: it follows the gateway, redraws, and leaves the terminal as it
was (`full_screen.py`).
"""
