"""All that a program on an event loop needs of time and turns: clock, alarms, pace, log lines, memory.

A server, the observer and the test kit share it.

House rule: nothing here knows a request, a group or a log.
"""
