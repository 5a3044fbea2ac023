import asyncio

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import KafkaError
from worker import Worker

ASSIGNORS = {"range": RangePartitionAssignor}


class AiokafkaWorker(Worker, ConsumerRebalanceListener):
    def run(self):
        asyncio.run(self.consume())

    async def consume(self):
        consumer = AIOKafkaConsumer(partition_assignment_strategy=(ASSIGNORS[self.assignor],), **self.settings)
        consumer.subscribe(self.topics, listener=self)
        async with consumer:
            while not self.is_over.is_set() and self.error is None:
                try:
                    batches = await consumer.getmany(timeout_ms=20)
                except KafkaError as error:
                    self.error = str(error)
                    return
                for message in [message for batch in batches.values() for message in batch]:
                    await asyncio.to_thread(self.handle, message.value)
                    self.records.append(message.value)
                    try:
                        await consumer.commit({TopicPartition(message.topic, message.partition): message.offset + 1})
                    except KafkaError:
                        self.refused.append(message.value)

    async def on_partitions_revoked(self, revoked):
        if revoked:
            await asyncio.to_thread(self.on_revoke)

    async def on_partitions_assigned(self, assigned):
        pass
