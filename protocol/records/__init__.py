"""Record batches, format v2: the bytes of a log (KIP-98).

    batch         what a batch is, and how one is written
    walk          the walker over a batch's records, and its readers
    rewrite       a batch anew: with another offset, or with fewer records
    plain_values  the last values in many plain batches, as a load reads them
    plain_keys    the keys of a plain batch, as compaction reads them
    codecs        compression
    varint        the numbers inside a record

House rule: as protocol's. Nothing here knows what the records of a log mean.
"""
