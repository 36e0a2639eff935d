"""The owner's yes: which runs a site takes part in, decided there and bound to what was read.

    asked.py       what a run asks for, and what its approval is bound to
    packages.py    SHA-256 of the packages whose code a run uses
    decisions.py   the owner's decisions, signed, and what counts where they do not hold
    kept.py        the files: what was asked, and the decisions
    gate.py        the question before each task: may this run go on here
    words.py       what a run asks for, in words
    page.py        a page on loopback with the same decisions

Nothing of it talks to the aggregator. The worker reports what was decided.
"""
