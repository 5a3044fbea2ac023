"""`tenure log`: print the metadata log, check it, and move it between Tenure and Apache Kafka."""
