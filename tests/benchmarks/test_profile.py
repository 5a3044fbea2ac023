"""Samples are counted by function, and a profile of a server that runs has the server's functions in it."""

from __future__ import annotations

from benchmarks import profile


def test_samples_are_counted_by_function() -> None:
    """Self: on top. Total: anywhere on the main thread's stack, once per sample."""
    own, anywhere = profile.counted(
        [
            "thread (1): MainThread;run (a.py:1);answer (b.py:7) 3",
            "thread (1): MainThread;run (a.py:2);answer (b.py:9);answer (b.py:7) 2",
            "thread (2): log;write (c.py:1) 1",
        ]
    )
    assert own == {"answer (b.py)": 5}
    assert anywhere == {"run (a.py)": 5, "answer (b.py)": 5}
