"""`python -m cutwater`: the command line, where no PATH leads to the command."""

from cutwater.cli.start import main

main()
