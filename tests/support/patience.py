"""How long a test waits for an event that has to come.

The limit only ends a test that would wait for ever. A slow disk or a busy machine makes a test slow and not red.

House rule: no test compares a time with this limit, and no test waits until it is over.
"""

from __future__ import annotations

WITHIN_S = 180.0
