"""`make demo` runs this module: `python -m examples.demo`."""

from examples.demo.command import app

if __name__ == "__main__":
    app()
