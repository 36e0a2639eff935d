"""The web console: a page that a browser runs, and the code that serves it.

`files.py` reads what is in `static/` and says how it is sent; `routes.py` serves it. The page itself is plain ECMAScript
modules and CSS: it is not built, and it loads nothing from elsewhere. `static/app.js` is where it begins.
"""
