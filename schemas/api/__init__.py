"""A file per API: the fields on the wire in each version.

Each file has:

- NAME and API_KEY.
- VERSIONS: first and last, inclusive.
- FLEXIBLE: the first flexible version (KIP-482), or None.
- CHANGES: how each version differs from the one before. A version that isn't named has the same fields and meaning; it
  may still be the first in the flexible form.
- REQUEST and RESPONSE: the tables. The head of `protocol.definition` says how to read a table.

Field names, types, versions and numbers are facts of Kafka's protocol, as in its JSON definitions for release 3.9
(clients/src/main/resources/common/message), or later where a version says so.

House rule: data, and no imports but `schemas.api_keys`. To change a message, change its file here; then `make stubs`
writes the types anew (protocol/messages.pyi), and the table of keys.
"""

from __future__ import annotations

from schemas.api_keys import API_KEYS

SERVED = {
    name: key
    for name, key in API_KEYS.items()
    if name not in {"ShareGroupDescribe", "StreamsGroupDescribe", "DescribeShareGroupOffsets"}
}
"""Those that a server of Tenure has; our commands ask Apache Kafka for the others."""


def module_name(api: str) -> str:
    """The file of an API: "JoinGroup" is in `join_group`."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in api)[1:]
