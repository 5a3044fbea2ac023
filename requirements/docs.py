"""Hooks of mkdocs, for `make docs`: mkdocs.yml names this file.

The site has the pages below docs/ alone. A link from there to another file works on a code host. The site
shows it as plain text, because it doesn't know the address of a code host.

House rule: `tests/test_tidy.py` looks up each link in the tree, so this file needs to look up none.
"""

import re
from typing import Any

OUTSIDE = re.compile(r"\[([^][]*)\]\(((?:\.\./)+)[^()\s]*\)")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Return a page without its links to files outside docs/."""
    depth = page.file.src_uri.count("/")
    return OUTSIDE.sub(lambda link: link[1] if link[2].count("../") > depth else link[0], markdown)
