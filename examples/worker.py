"""A consumer on a thread: a stand-in for your own code. worker_*.py have its loop, in each client's own words."""

from threading import Event, Thread


class Worker:
    """Consumes `topics`, calls `handle` with each value, and commits each record. A subclass has `run`.

    on_revoke: called before it gives topic partitions away. assignor: "range" or "cooperative-sticky". settings: by
    Kafka's names, with underscores. records: the values that it handled. refused: those of them whose commit was
    refused. error: why it ended by itself, None while it works.
    """

    def __init__(
        self,
        bootstrap_servers,
        name,
        topics=("orders",),
        handle=lambda _: None,
        on_revoke=lambda: None,
        assignor="range",
        **settings,
    ):
        self.topics = list(topics)
        self.handle = handle
        self.on_revoke = on_revoke
        self.assignor = assignor
        self.settings = {
            "bootstrap_servers": bootstrap_servers,
            "client_id": name,
            "group_id": "workers",
            "heartbeat_interval_ms": 100,  # 3 s by default: so late a member hears that its group rebalances
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            **settings,
        }
        self.records = []
        self.refused = []
        self.start()

    def start(self):
        self.error = None
        self.is_over = Event()
        self.thread = Thread(target=self.run)
        self.thread.start()

    def stop(self):
        self.is_over.set()
        self.thread.join()

    def restart(self, topics=None):
        self.stop()
        self.topics = topics or self.topics
        self.start()
