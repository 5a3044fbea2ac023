"""The audit of the metadata log: is it right, what is odd, and what happened to each group.

    read       files -> rows
    check      rows -> findings and stories
    show       findings and stories -> a report, a page, a summary
    audit      all of it in one process
    following  the state between two looks at a log that grows
    spark      all of it on Spark

House rule: check imports nothing of show, and read nothing of check (pyproject.toml has it as a contract).
"""
