from kafka import ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import KafkaError
from worker import Worker

ASSIGNORS = {"range": RangePartitionAssignor, "cooperative-sticky": CooperativeStickyAssignor}


class KafkaPythonWorker(Worker, ConsumerRebalanceListener):
    def run(self):
        consumer = KafkaConsumer(partition_assignment_strategy=[ASSIGNORS[self.assignor]], **self.settings)
        consumer.subscribe(self.topics, listener=self)
        consumer.topics()  # if it joined before it knew the topics, it would assign nothing, and join again
        while not self.is_over.is_set() and self.error is None:
            try:
                batches = consumer.poll(
                    timeout_ms=2_000
                )  # a poll that ends during a join may forget it, and join again
            except KafkaError as error:
                if not error.retriable:
                    self.error = str(error)
                continue
            for message in [message for batch in batches.values() for message in batch]:
                self.handle(message.value)
                self.records.append(message.value)
                place = TopicPartition(message.topic, message.partition)
                try:
                    consumer.commit({place: OffsetAndMetadata(message.offset + 1, "", -1)}, timeout_ms=10_000)
                except KafkaError:
                    self.refused.append(message.value)
        consumer.close()

    def on_partitions_revoked(self, revoked):
        if revoked:
            self.on_revoke()

    def on_partitions_assigned(self, assigned):
        pass

    def on_partitions_lost(self, lost):
        pass
