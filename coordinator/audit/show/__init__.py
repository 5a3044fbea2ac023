"""Shows the result of an audit to people and programs.

    report    for a terminal
    page      as HTML
    summary   as JSON

House rule: these modules find nothing themselves.
"""
