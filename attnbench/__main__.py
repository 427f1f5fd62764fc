"""The program `attnbench`, as `python -m attnbench` runs it."""

from attnbench.commands.entry import main

if __name__ == "__main__":
    main()
