"""What the metadata log tells about every group: whether it is right, what is odd, what happened.

    read       files -> rows
    check      rows -> findings and stories
    show       findings and stories -> a report, a page, a summary
    audit      all of it in one process; options: how somebody says what the coordinators allowed
    following  what is kept of a log that grows
    publish    all that is told of a result; words: how numbers, moments and details are said
    spark      all of it on Spark

House rule: check imports nothing of show, and read nothing of check (pyproject.toml has it as a contract).
"""
