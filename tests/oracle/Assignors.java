// Kafka's own assignors, for test_assignors.py: commands on standard input, an answer to each `assign` on standard output.
//
//   topic TOPIC COUNT                         a topic is a number; it has so many partitions
//   member ID INSTANCE TOPIC,.. TOPIC:N,..    what it subscribes to and owns; - is no instance id, or none
//   assign NAME                               ID TOPIC:N,.. ID TOPIC:N,.. ... on one line, and begin again

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Scanner;
import java.util.Set;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

public class Assignors {
    static class Topics implements SubscribedTopicDescriber {
        final Map<Uuid, Integer> counts = new HashMap<>();

        @Override
        public int numPartitions(Uuid topicId) {
            return counts.getOrDefault(topicId, -1);
        }

        @Override
        public Set<String> racksForPartition(Uuid topicId, int partition) {
            return Collections.emptySet();
        }
    }

    final Topics topics = new Topics();
    final Map<String, MemberSubscriptionAndAssignmentImpl> members = new HashMap<>();
    final Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
    final Set<Set<Uuid>> subscriptions = new HashSet<>();

    static Uuid topic(String number) {
        return new Uuid(0L, Long.parseLong(number));
    }

    static String[] list(String text) {
        return text.equals("-") ? new String[0] : text.split(",");
    }

    void member(String id, String instance, String subscribed, String owned) {
        Set<Uuid> wanted = new HashSet<>();
        for (String number : list(subscribed)) {
            wanted.add(topic(number));
        }
        Map<Uuid, Set<Integer>> mine = new HashMap<>();
        for (String each : list(owned)) {
            String[] parts = each.split(":");
            int partition = Integer.parseInt(parts[1]);
            mine.computeIfAbsent(topic(parts[0]), unused -> new HashSet<>()).add(partition);
            owners.computeIfAbsent(topic(parts[0]), unused -> new HashMap<>()).put(partition, id);
        }
        Optional<String> place = instance.equals("-") ? Optional.empty() : Optional.of(instance);
        members.put(id, new MemberSubscriptionAndAssignmentImpl(Optional.empty(), place, wanted, new Assignment(mine)));
        subscriptions.add(wanted);
    }

    String assign(String name) {
        ConsumerGroupPartitionAssignor assignor = name.equals("range") ? new RangeAssignor() : new UniformAssignor();
        SubscriptionType type = subscriptions.size() > 1 ? SubscriptionType.HETEROGENEOUS : SubscriptionType.HOMOGENEOUS;
        Map<String, MemberAssignment> targets = assignor.assign(new GroupSpecImpl(members, type, owners), topics).members();
        List<String> words = new ArrayList<>();
        targets.forEach((id, target) -> {
            List<String> partitions = new ArrayList<>();
            target.partitions().forEach((topicId, numbers) ->
                numbers.forEach(number -> partitions.add(topicId.getLeastSignificantBits() + ":" + number)));
            words.add(id);
            words.add(partitions.isEmpty() ? "-" : String.join(",", partitions));
        });
        return String.join(" ", words);
    }

    public static void main(String[] arguments) {
        Scanner lines = new Scanner(System.in);
        Assignors group = new Assignors();
        while (lines.hasNextLine()) {
            String[] words = lines.nextLine().split(" ");
            switch (words[0]) {
                case "topic":
                    group.topics.counts.put(topic(words[1]), Integer.parseInt(words[2]));
                    break;
                case "member":
                    group.member(words[1], words[2], words[3], words[4]);
                    break;
                default:
                    System.out.println(group.assign(words[1]));
                    group = new Assignors();
            }
        }
    }
}
