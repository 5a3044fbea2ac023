"""`make demo` runs this module: `python -m coordinator.cli.demo`."""

from coordinator.cli.demo.command import app

if __name__ == "__main__":
    app()
