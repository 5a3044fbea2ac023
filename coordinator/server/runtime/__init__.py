"""Partitions and what carries their effects out: gate, timers, clock, pace."""
