import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.SerializationFeature;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.AlterConfigOp.OpType;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.CreateTopicsResult;
import org.apache.kafka.clients.admin.DescribeClusterOptions;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.DescribeConsumerGroupsOptions;
import org.apache.kafka.clients.admin.DescribeTopicsOptions;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ListConsumerGroupsOptions;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.MemberDescription;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupResult;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.ConsumerGroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.config.ConfigResource;

/**
 * Kafka's AdminClient: prints its answers about topics, settings, groups and the cluster, as JSON.
 *
 * <p>Its argument is a server's address. A line of standard input names a phase, and is answered by a line that maps its
 * steps to what came of them: a value, or the error's class. The test sees to the groups between two phases.
 *
 * <p>House rule: what a server may choose freely (ids, addresses, orders) isn't printed.
 */
public final class Admin {
    private static final ObjectMapper JSON =
            new ObjectMapper().configure(SerializationFeature.ORDER_MAP_ENTRIES_BY_KEYS, true);
    private static final ConfigResource ORDERS = new ConfigResource(ConfigResource.Type.TOPIC, "orders");
    private static final ConfigResource NOWHERE = new ConfigResource(ConfigResource.Type.TOPIC, "nowhere");

    private final AdminClient admin;
    private final Map<String, Object> said = new LinkedHashMap<>();
    private Map<String, String> lastSet = Map.of();

    private Admin(AdminClient admin) {
        this.admin = admin;
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader phases = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", arguments[0], "request.timeout.ms", "10000", "default.api.timeout.ms", "20000");
        try (AdminClient client = AdminClient.create(settings)) {
            for (String phase = phases.readLine(); phase != null; phase = phases.readLine()) {
                Admin admin = new Admin(client);
                switch (phase) {
                    case "topics":
                        admin.topics();
                        break;
                    case "settings":
                        admin.settings();
                        break;
                    case "live":
                        admin.live();
                        break;
                    case "gone":
                        admin.gone();
                        break;
                    default:
                        throw new IllegalArgumentException(phase);
                }
                System.out.println(JSON.writeValueAsString(admin.said));
            }
        }
    }

    private void topics() throws Exception {
        step("cluster", () -> {
            DescribeClusterResult cluster =
                    admin.describeCluster(new DescribeClusterOptions().includeAuthorizedOperations(true));
            return Map.of(
                    "nodes", ids(cluster.nodes().get()),
                    "controller", cluster.controller().get().id(),
                    "operations", names(cluster.authorizedOperations().get()));
        });
        create("create", new NewTopic("orders", 3, (short) 1));
        create("create with defaults", new NewTopic("defaults", Optional.empty(), Optional.empty()));
        create(
                "create with settings",
                new NewTopic("prices", 2, (short) 1)
                        .configs(Map.of("cleanup.policy", "compact", "segment.bytes", "1048576")));
        create("create assigned", new NewTopic("assigned", Map.of(0, List.of(1), 1, List.of(1))));
        create("create again", new NewTopic("orders", 3, (short) 1));
        create("create with a bad name", new NewTopic("a b", 3, (short) 1));
        create("create without partitions", new NewTopic("none", 0, (short) 1));
        create(
                "create with a bad setting",
                new NewTopic("bad", 1, (short) 1).configs(Map.of("retention.ms", "for ever")));
        step("validate", () -> {
            admin.createTopics(
                            List.of(new NewTopic("later", 1, (short) 1)), new CreateTopicsOptions().validateOnly(true))
                    .all()
                    .get();
            return new TreeSet<>(admin.listTopics().names().get());
        });
        step(
                "list",
                () -> new TreeSet<>(admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get()));
        describe("describe", "orders");
        describe("describe nowhere", "nowhere");
        step("describe by id", () -> {
            Uuid id = admin.describeTopics(List.of("prices")).allTopicNames().get().get("prices").topicId();
            return description(admin.describeTopics(TopicCollection.ofTopicIds(List.of(id)))
                    .allTopicIds()
                    .get()
                    .get(id));
        });
        step("more partitions", () -> admin.createPartitions(Map.of("orders", NewPartitions.increaseTo(4)))
                .all()
                .get());
        step("fewer partitions", () -> admin.createPartitions(Map.of("orders", NewPartitions.increaseTo(2)))
                .all()
                .get());
        step("partitions of nowhere", () -> admin.createPartitions(Map.of("nowhere", NewPartitions.increaseTo(2)))
                .all()
                .get());
        describe("described with more partitions", "orders");
        for (Map.Entry<String, OffsetSpec> spec : Map.of(
                        "earliest", OffsetSpec.earliest(),
                        "latest", OffsetSpec.latest(),
                        "max timestamp", OffsetSpec.maxTimestamp(),
                        "time", OffsetSpec.forTimestamp(0))
                .entrySet()) {
            step("offsets, " + spec.getKey(), () -> {
                TopicPartition asked = new TopicPartition("prices", 0);
                return admin.listOffsets(Map.of(asked, spec.getValue())).partitionResult(asked).get().offset();
            });
        }
        step("delete records behind the end", () -> admin.deleteRecords(
                        Map.of(new TopicPartition("orders", 0), RecordsToDelete.beforeOffset(5)))
                .all()
                .get());
        step("delete records of a compacted topic", () -> admin.deleteRecords(
                        Map.of(new TopicPartition("prices", 0), RecordsToDelete.beforeOffset(0)))
                .all()
                .get());
        step("delete records", () -> {
            TopicPartition asked = new TopicPartition("orders", 0);
            return admin.deleteRecords(Map.of(asked, RecordsToDelete.beforeOffset(0)))
                    .lowWatermarks()
                    .get(asked)
                    .get()
                    .lowWatermark();
        });
        step("delete", () -> admin.deleteTopics(List.of("assigned")).all().get());
        step("delete again", () -> admin.deleteTopics(List.of("assigned")).all().get());
        step("delete by id", () -> {
            Uuid id = admin.describeTopics(List.of("defaults")).allTopicNames().get().get("defaults").topicId();
            return admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id))).all().get();
        });
    }

    private void settings() throws Exception {
        lastSet = set(ORDERS);
        step("describe", () -> entries(config(ORDERS)));
        step("describe nowhere", () -> entries(config(NOWHERE)));
        step("broker", () -> values(config(new ConfigResource(ConfigResource.Type.BROKER, "1"))));
        alter("set", ORDERS, OpType.SET, "retention.ms", "3600000");
        alter("set another", ORDERS, OpType.SET, "cleanup.policy", "delete");
        alter("append", ORDERS, OpType.APPEND, "cleanup.policy", "compact");
        alter("subtract", ORDERS, OpType.SUBTRACT, "cleanup.policy", "delete");
        alter("delete", ORDERS, OpType.DELETE, "retention.ms", "");
        alter("append to what is no list", ORDERS, OpType.APPEND, "retention.ms", "1");
        alter("set badly", ORDERS, OpType.SET, "retention.ms", "for ever");
        alter("set what isn't", ORDERS, OpType.SET, "nonsense", "1");
        alter("set nowhere", NOWHERE, OpType.SET, "retention.ms", "1");
        alter("set cleanup.policy back", ORDERS, OpType.DELETE, "cleanup.policy", "");
    }

    private void live() throws Exception {
        step("list", () -> admin.listConsumerGroups().all().get().stream()
                .map(each -> List.of(each.groupId(), each.isSimpleConsumerGroup(), text(each.state()), text(each.type())))
                .collect(Collectors.toSet()));
        step("list by state", () -> admin
                .listConsumerGroups(new ListConsumerGroupsOptions().inStates(Set.of(ConsumerGroupState.STABLE)))
                .all()
                .get()
                .size());
        step("list by type", () -> admin
                .listConsumerGroups(new ListConsumerGroupsOptions().withTypes(Set.of(GroupType.CONSUMER)))
                .all()
                .get()
                .size());
        describeGroup("describe", "seats");
        describeGroup("describe nobody", "nobody");
        step("commit for a live group", () -> admin
                .alterConsumerGroupOffsets("seats", Map.of(new TopicPartition("orders", 0), new OffsetAndMetadata(1)))
                .all()
                .get());
        step("delete offsets of a live group", () -> admin
                .deleteConsumerGroupOffsets("seats", Set.of(new TopicPartition("orders", 0)))
                .all()
                .get());
        step("delete a live group", () -> admin.deleteConsumerGroups(List.of("seats")).all().get());
    }

    private void gone() throws Exception {
        remove("remove", "seats", "seat-0", "nobody");
        describeGroup("described without it", "seats");
        remove("remove again", "seats", "seat-0");
        remove("remove from no group", "nobody", "seat-0");
        step("remove all", () -> admin
                .removeMembersFromConsumerGroup("seats", new RemoveMembersFromConsumerGroupOptions())
                .all()
                .get());
        describeGroup("described in the end", "seats");
        offsets("commit", "seats", Map.of(0, 7L, 1, 9L));
        offsets("commit for a new group", "beginners", Map.of(0, 3L));
        step("commit where nothing is", () -> admin
                .alterConsumerGroupOffsets("seats", Map.of(new TopicPartition("nowhere", 0), new OffsetAndMetadata(1)))
                .all()
                .get());
        step("offsets of several groups", () -> {
            Map<String, Map<TopicPartition, OffsetAndMetadata>> found = admin.listConsumerGroupOffsets(Map.of(
                            "seats", new ListConsumerGroupOffsetsSpec(),
                            "beginners",
                            new ListConsumerGroupOffsetsSpec()
                                    .topicPartitions(
                                            List.of(new TopicPartition("orders", 0), new TopicPartition("orders", 1))),
                            "nobody", new ListConsumerGroupOffsetsSpec()))
                    .all()
                    .get();
            Map<String, String> shown = new TreeMap<>();
            found.forEach((group, offsets) -> shown.put(group, text(offsets)));
            return shown;
        });
        step("delete offsets", () -> admin
                .deleteConsumerGroupOffsets("seats", Set.of(new TopicPartition("orders", 0)))
                .all()
                .get());
        step("left", () -> text(admin.listConsumerGroupOffsets("seats").partitionsToOffsetAndMetadata().get()));
        step("delete groups", () -> {
            Map<String, Object> found = new HashMap<>();
            for (Map.Entry<String, KafkaFuture<Void>> each :
                    admin.deleteConsumerGroups(List.of("seats", "beginners", "nobody")).deletedGroups().entrySet()) {
                found.put(each.getKey(), outcome(() -> each.getValue().get()));
            }
            return found;
        });
        step("listed in the end", () -> admin.listConsumerGroups().all().get().size());
    }

    private void create(String name, NewTopic topic) throws Exception {
        step(name, () -> {
            CreateTopicsResult result = admin.createTopics(List.of(topic));
            result.all().get();
            return Map.of(
                    "partitions", result.numPartitions(topic.name()).get(),
                    "replication", result.replicationFactor(topic.name()).get(),
                    "settings", entries(result.config(topic.name()).get()));
        });
    }

    private void describe(String name, String topic) throws Exception {
        step(name, () -> description(admin.describeTopics(
                        List.of(topic), new DescribeTopicsOptions().includeAuthorizedOperations(true))
                .allTopicNames()
                .get()
                .get(topic)));
    }

    private static Object description(TopicDescription topic) {
        Map<String, Object> found = new HashMap<>();
        found.put("name", topic.name());
        found.put("internal", topic.isInternal());
        found.put("operations", names(topic.authorizedOperations()));
        for (TopicPartitionInfo each : topic.partitions()) {
            found.put(
                    "partition " + each.partition(),
                    List.of(each.leader().id(), ids(each.replicas()), ids(each.isr())));
        }
        return found;
    }

    private Config config(ConfigResource resource) throws Exception {
        return admin.describeConfigs(List.of(resource)).all().get().get(resource);
    }

    /** All that is known of each setting but its synonyms. */
    private static Object entries(Config config) {
        Map<String, Object> found = new TreeMap<>();
        for (ConfigEntry each : config.entries()) {
            found.put(each.name(), Arrays.asList(
                    each.value(), text(each.source()), each.isSensitive(), each.isReadOnly(), text(each.type())));
        }
        return found;
    }

    /** The values of settings that nobody has set. */
    private static Object values(Config config) {
        Map<String, Object> found = new TreeMap<>();
        for (ConfigEntry each : config.entries()) {
            if (each.source() == ConfigEntry.ConfigSource.DEFAULT_CONFIG && each.value() != null) {
                found.put(each.name(), each.value());
            }
        }
        return found;
    }

    /** Each that isn't refused changes what is set. A broker hears of that from its controller, a moment later. */
    private void alter(String name, ConfigResource resource, OpType how, String setting, String value)
            throws Exception {
        step(name, () -> {
            admin.incrementalAlterConfigs(
                            Map.of(resource, List.of(new AlterConfigOp(new ConfigEntry(setting, value), how))))
                    .all()
                    .get();
            Map<String, String> now = set(resource);
            for (int looks = 1; now.equals(lastSet) && looks < 100; looks++) {
                Thread.sleep(50);
                now = set(resource);
            }
            lastSet = now;
            return now;
        });
    }

    /** What is set of a topic's settings. */
    private Map<String, String> set(ConfigResource resource) throws Exception {
        Map<String, String> set = new TreeMap<>();
        for (ConfigEntry each : config(resource).entries()) {
            if (each.source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG) {
                set.put(each.name(), each.value());
            }
        }
        return set;
    }

    private void describeGroup(String name, String group) throws Exception {
        step(name, () -> {
            ConsumerGroupDescription found = admin.describeConsumerGroups(
                            List.of(group), new DescribeConsumerGroupsOptions().includeAuthorizedOperations(true))
                    .all()
                    .get()
                    .get(group);
            Map<String, Object> members = new TreeMap<>();
            for (MemberDescription each : found.members()) {
                String seat = each.groupInstanceId().orElse("none");
                boolean isNamedForIt = each.consumerId().startsWith(seat + "-");
                members.put(seat, List.of(
                        isNamedForIt, each.clientId(), each.host(), text(each.assignment().topicPartitions())));
            }
            return Map.of(
                    "state", text(found.state()),
                    "type", text(found.type()),
                    "simple", found.isSimpleConsumerGroup(),
                    "assignor", found.partitionAssignor(),
                    "coordinator", found.coordinator().id(),
                    "members", members,
                    "operations", names(found.authorizedOperations()));
        });
    }

    private void remove(String name, String group, String... seats) throws Exception {
        step(name, () -> {
            Set<MemberToRemove> members = Arrays.stream(seats).map(MemberToRemove::new).collect(Collectors.toSet());
            RemoveMembersFromConsumerGroupOptions options = new RemoveMembersFromConsumerGroupOptions(members);
            options.reason("scaled in");
            RemoveMembersFromConsumerGroupResult result = admin.removeMembersFromConsumerGroup(group, options);
            Map<String, Object> found = new HashMap<>();
            for (MemberToRemove each : members) {
                found.put(each.groupInstanceId(), outcome(() -> result.memberResult(each).get()));
            }
            return found;
        });
    }

    private void offsets(String name, String group, Map<Integer, Long> offsets) throws Exception {
        step(name, () -> {
            Map<TopicPartition, OffsetAndMetadata> wanted = new HashMap<>();
            offsets.forEach((partition, offset) -> wanted.put(
                    new TopicPartition("orders", partition),
                    new OffsetAndMetadata(offset, Optional.of(0), "by hand")));
            admin.alterConsumerGroupOffsets(group, wanted).all().get();
            return text(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get());
        });
    }

    private void step(String name, Callable<Object> ask) throws Exception {
        if (said.put(name, outcome(ask)) != null) {
            throw new IllegalArgumentException("two steps are named " + name);
        }
    }

    private static Object outcome(Callable<Object> ask) throws Exception {
        try {
            Object found = ask.call();
            return found == null ? "done" : found;
        } catch (ExecutionException error) {
            return error.getCause().getClass().getSimpleName();
        }
    }

    private static String text(Object value) {
        if (value instanceof Map) {
            Map<String, Object> sorted = new TreeMap<>();
            ((Map<?, ?>) value).forEach((key, each) -> sorted.put(key.toString(), each));
            return sorted.toString();
        }
        if (value instanceof Collection) {
            return ((Collection<?>) value).stream().map(Object::toString).sorted().collect(Collectors.toList()).toString();
        }
        if (value instanceof Optional) {
            return text(((Optional<?>) value).orElse(null));
        }
        return String.valueOf(value);
    }

    private static List<Integer> ids(Collection<Node> nodes) {
        return nodes.stream().map(Node::id).collect(Collectors.toList());
    }

    private static Object names(Set<AclOperation> operations) {
        return operations == null ? "not asked" : text(operations);
    }
}
