"""`new(Class, fields)` makes a named tuple without its constructor, where every request or record makes some.

A NamedTuple's own constructor takes twice as long, a note's three times. But `new` doesn't check number and order of
the fields. So notes that are made once per rebalance are made by their constructor.

House rule: nothing else stands here.
"""

new = tuple.__new__
