"""The pages of the documentation that messages name. No other module has an address of a page in a message.

The documentation has no public address: messages name the file in the tree, and the heading as the site's anchor.

House rule: a test looks up each file and each heading.
"""

from typing import Final

ALLOW: Final = "docs/secure/acls.md#allow-something"
AUDIT_CHECKS: Final = "docs/ask-why/audit-checks.md"
AUDIT_FILES: Final = "docs/ask-why/audit-files.md"
DAMAGED_PARTITION: Final = "docs/run/disk-trouble.md#a-partition-is-refused"
EVENTS: Final = "docs/run/events.md"
FAULTS: Final = "docs/test/time-faults-nodes.md#the-text"
SECURED: Final = "docs/secure/ten-minutes.md"
SETTINGS: Final = "docs/run/settings.md"
TRANSACTIONS: Final = "docs/run/transactions.md"
