"""Facts about Kafka's protocol as data: messages (`api`), records (`records`), error codes (`errors`).

House rule: nothing here computes anything or imports anything of ours.
"""
