"""`python -m fedplcc`: the same as the command `fedplcc`."""

from fedplcc.cli import main

main()
