"""ConsumerGroupDescribe: groups of the consumer protocol with epochs, members and assignments (KIP-848).

`include_waiting`, `waiting` and `expects` are this project's own: tagged fields, which other programs skip. `waiting`
names the members that a group waits for until all have their part of the target, and regular expressions that match no
topic. `expects` names the expected members that are missing. A member's `session_timeout_ms` and `silent_ms` say
whether its program is there. The server sends the four only if the request asks for `waiting`.
"""

NAME = "ConsumerGroupDescribe"
API_KEY = 69
VERSIONS = (0, 1)
FLEXIBLE = 0

CHANGES = {
    1: "A member's `member_type` says which protocol it speaks (KIP-1099).",
}

REQUEST = """
group_ids                      []string  0+
include_authorized_operations  bool      0+
include_waiting                bool      0+  ignorable tag=10000
"""

RESPONSE = """
throttle_time_ms                   int32                    0+
groups                             []DescribedGroup         0+
    error_code                     int16                    0+
    error_message                  string                   0+  null default=null
    group_id                       string                   0+
    group_state                    string                   0+
    group_epoch                    int32                    0+
    assignment_epoch               int32                    0+
    assignor_name                  string                   0+
    members                        []Member                 0+
        member_id                  string                   0+
        instance_id                string                   0+  null default=null
        rack_id                    string                   0+  null default=null
        member_epoch               int32                    0+
        client_id                  string                   0+
        client_host                string                   0+
        subscribed_topic_names     []string                 0+
        subscribed_topic_regex     string                   0+  null default=null
        assignment                 Assignment               0+
            topic_partitions       []TopicPartitions        0+
                topic_id           uuid                     0+
                topic_name         string                   0+
                partitions         []int32                  0+
        target_assignment          Assignment               0+
            topic_partitions       []TopicPartitions        0+
                topic_id           uuid                     0+
                topic_name         string                   0+
                partitions         []int32                  0+
        member_type                int8                     1+  default=-1 ignorable  # 0 classic, 1 consumer protocol
        session_timeout_ms         int32                    0+  default=-1 ignorable tag=10000
        silent_ms                  int64                    0+  default=-1 ignorable tag=10001  # since its last request
    authorized_operations          int32                    0+  default=-2147483648
    waiting                        ConsumerGroupWaiting     0+  ignorable tag=10000
        since_ms                   int64                    0+  default=-1  # Unix time; -1: the server doesn't say
        members                    []AwaitedMember          0+
            member_id              string                   0+
            phase                  string                   0+  # revoking, acknowledging, away
            partitions             int32                    0+  # to give up; of a member that is away, those it keeps
            since_ms               int64                    0+  default=-1  # -1: nobody knows
            until_ms               int64                    0+              # when it is removed
        regexes_without_topics     []string                 0+
    expects                        ConsumerGroupExpects     0+  ignorable tag=10001
        missing                    []string                 0+              # instance ids
"""
