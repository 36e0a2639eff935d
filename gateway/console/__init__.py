"""The web console: a page that a browser runs, and the code that serves it.

`files.py` reads what is in `static/` and says how it is sent; `routes.py` serves it. The page itself is plain ECMAScript
modules and CSS: it is not built, and it loads nothing from elsewhere. `static/app.js` is where it begins; a page is the
module of its folder's name, `run/run.js`, and brings its parts from beside it:

    lib/        what every page uses: elements, words for figures, talking to the gateway, dialogs
    overview/   the federation at a glance
    clients/    its clients
    run/        one run: its state, followed live, and a module for each section of its page
    charts/     the sections of that page that draw curves
    map/        the section of that page that draws prototypes
    start/      the form that starts a run
    styles/     tokens and rules; console.css first
"""
