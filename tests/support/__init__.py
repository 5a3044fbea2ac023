"""What several suites share: real servers as processes."""
