"""`python -m coordinator.cli.demo`, what `make demo` runs."""

from coordinator.cli.demo.command import app

if __name__ == "__main__":
    app()
