"""The hooks of the site."""

from types import SimpleNamespace

from requirements.docs import on_page_markdown


def test_a_link_out_of_docs_is_plain_text() -> None:
    """Links to pages stay; of a link to a file of the tree only the text stays, and a line break in it."""
    text = "[ACLs](../secure/acls.md#rules), [a\ntest](../../tests/x.py) and [README](../README.md)"
    page = SimpleNamespace(file=SimpleNamespace(src_uri="run/rolling.md"))
    assert on_page_markdown(text, page=page) == "[ACLs](../secure/acls.md#rules), a\ntest and [README](../README.md)"
    top = SimpleNamespace(file=SimpleNamespace(src_uri="README.md"))
    assert on_page_markdown("[Contributing](../CONTRIBUTING.md)", page=top, config=None) == "Contributing"
