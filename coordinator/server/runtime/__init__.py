"""The runtime: partitions, and what carries their effects out (gate, delivery, loads, trouble, pace)."""
