from confluent_kafka import Consumer, KafkaError, KafkaException
from worker import Worker

NAMES = {"request_timeout_ms": "socket.timeout.ms"}
"""Settings that this client names in its own way."""

OF_THE_SERVER = {"session.timeout.ms", "heartbeat.interval.ms"}


class ConfluentWorker(Worker):
    def run(self):
        settings = {NAMES.get(name, name.replace("_", ".")): value for name, value in self.settings.items()}
        if settings.get("group.protocol") == "consumer":  # there the server has these settings
            settings = {name: value for name, value in settings.items() if name not in OF_THE_SERVER}
        else:
            settings["partition.assignment.strategy"] = self.assignor
        consumer = Consumer(settings | {"log_level": 0})
        consumer.subscribe(self.topics, on_revoke=lambda *_: self.on_revoke())
        while not self.is_over.is_set() and self.error is None:
            message = consumer.poll(0.02)
            if message is None:
                continue
            if message.error() is None:
                self.handle(message.value())
                self.records.append(message.value())
                try:
                    consumer.commit(message, asynchronous=False)
                except KafkaException:
                    self.refused.append(message.value())
            elif message.error().code() == KafkaError._FATAL:  # noqa: SLF001 - its public name
                self.error = str(message.error())
        consumer.close()
