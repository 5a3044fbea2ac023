"""An assignor for aiokafka that orders members by instance id, as Kafka's own clients do.

    AIOKafkaConsumer(..., group_instance_id=name, partition_assignment_strategy=(by_instance(name),))

aiokafka's own assignors order members by member id: an instance id, "-" and a random part. If one instance id begins
with another one and "-" (`worker-2` and `worker`), the random part decides. Then a start of the whole group may give
them each other's partitions. aiokafka doesn't tell its assignors instance ids, so each member sends its own in its
subscription.

House rule: the name is not `range`, because a leader with another assignor of that name would order otherwise.
"""

from itertools import pairwise

from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata


def by_instance(instance_id):
    """The assignor of the member with this instance id. All members of the group need theirs."""

    class ByInstance(AbstractPartitionAssignor):
        name = "range-by-instance"

        @classmethod
        def assign(cls, cluster, members):
            seats = sorted(members, key=lambda member_id: (members[member_id].user_data or b"", member_id))
            shares = {member_id: [] for member_id in seats}
            for topic in sorted({topic for metadata in members.values() for topic in metadata.subscription}):
                takers = [member_id for member_id in seats if topic in members[member_id].subscription]
                for member_id, share in zip(
                    takers, split(cluster.partitions_for_topic(topic), len(takers)), strict=True
                ):
                    shares[member_id].append((topic, share))
            return {member_id: ConsumerProtocolMemberAssignment(0, share, b"") for member_id, share in shares.items()}

        @classmethod
        def metadata(cls, topics):
            return ConsumerProtocolMemberMetadata(0, list(topics), instance_id.encode())

        @classmethod
        def on_assignment(cls, assignment):
            pass

    return ByInstance


def split(partitions, count):
    """`count` shares of neighbouring partitions. The first shares get one more if the division leaves a remainder."""
    partitions = sorted(partitions or ())
    each, more = divmod(len(partitions), count)
    ends = [each * number + min(number, more) for number in range(count + 1)]
    return [partitions[begin:end] for begin, end in pairwise(ends)]
