"""The program `attnbench`, as `python -m attnbench` runs it."""

from attnbench.commands import entry

main = entry.main

if __name__ == "__main__":
    main()
