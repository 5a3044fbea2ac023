"""The command line: one module per command, imported when the command runs (`main`).

House rule: standard output is for what was asked, standard error for what went wrong, in one line; the exit code says
which kind of wrong (`exit_codes`).
"""
