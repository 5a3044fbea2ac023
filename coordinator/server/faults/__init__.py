"""Faults that a test plans: requests that the server delays, drops or refuses on purpose."""
