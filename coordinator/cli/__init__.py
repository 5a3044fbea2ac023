"""The command line: each command has a module of its own. `main` imports it when the command runs.

House rule: standard output is for the answer. Standard error is for what went wrong, in one line. The exit code says
which kind of wrong it is (`exit_codes`).
"""
