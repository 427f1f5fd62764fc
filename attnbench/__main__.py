"""The program `attnbench`, as `python -m attnbench` runs it."""

from attnbench.cli.entry import main

if __name__ == "__main__":
    main()
