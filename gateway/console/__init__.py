"""The web console: a page that a browser runs, and the code that serves it.

`files.py` reads the files of `static/`; `routes.py` serves them. The page is made of plain ECMAScript modules and CSS: it
is not built, and loads nothing from other hosts. What it shows, REST has. It starts in `static/app.js`. A page is the
module with its folder's name, such as `run/run.js`. Folders import only from folders below them in this list; a test checks
it:

    overview/   the federation at a glance
    run/        one run, live: a module for each section of its page
    start/      the form that starts a run
    classes/    section of a run's page with counts of classes
    stages/     sections of a run's page with stages, and with who took part
    clients/    the clients of the federation
    charts/     sections of a run's page with curves
    map/        section of a run's page with prototypes
    lib/        elements, formats, a run's state and sentences, requests to the gateway, dialogs
    styles/     tokens and rules; console.css first
"""
