"""The test kit over HTTP, for tests in any language: `tenure serve --control HOST:PORT` (docs/test/other-languages.md).

`operations` is the table of all that a test can ask for: each operation calls one `Tenure`. `given` checks what a
request brings, `routes` brings it to an operation and its result back, `openapi` describes the table, and `serving` is
the process.
"""
