"""Record batches, format v2: the bytes of a log (KIP-98).

House rule: as protocol's. Nothing here knows what the records of a log mean.
"""
