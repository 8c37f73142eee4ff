"""Run the command line with `python -m holdfast`."""

from holdfast.cli import main

if __name__ == "__main__":
    main(prog_name="holdfast")
