"""How tuples with names are made where every request makes some: by `new(Class, fields)`.

A NamedTuple's own constructor takes twice as long, a note's three times. But nobody checks the fields' number and order
then, so notes that are made once a rebalance are made by their constructor.

House rule: nothing else.
"""

new = tuple.__new__
