"""A result becomes what people and programs look at.

    report    the terminal
    page      HTML
    summary   JSON

House rule: nothing is found here.
"""
