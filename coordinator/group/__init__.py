"""The group core: a pure state machine. Events go in, effects come out."""
