"""`python -m kmyriad`."""

from kmyriad.cli import main

main()
