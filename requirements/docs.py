"""Hooks of mkdocs, for `make docs`: mkdocs.yml names this file.

The site has the pages below docs/ alone. A link from there to another file works on a code host. The site
shows it as plain text, because it doesn't know the address of a code host.

House rule: `tests/test_tidy.py` looks up each link in the tree, so this file needs to look up none.
"""

import re
from typing import Any

SEARCH = '<div class="md-search" data-md-component="search" role="dialog"'

OUTSIDE = re.compile(r"\[([^][]*)\]\(((?:\.\./)+)[^()\s]*\)")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Return a page without its links to files outside docs/."""
    depth = page.file.src_uri.count("/")
    return OUTSIDE.sub(lambda link: link[1] if link[2].count("../") > depth else link[0], markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Return a page whose tables have no empty header cells: a screen reader would say them."""
    return html.replace("<th></th>", "<td></td>")


def on_post_page(output: str, **_: Any) -> str:
    """Return a page whose search has a name for screen readers, which the theme forgot."""
    assert SEARCH in output
    return output.replace(SEARCH, f'{SEARCH} aria-label="Search"')
