import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Properties;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.FencedInstanceIdException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * A consumer process on kafka-clients: the same commands and events as in ../worker.py, which says what they mean.
 *
 * <p>One source for every release; which one it is, the class path decides. The consumer belongs to the main thread;
 * another one reads commands, and ends the process when its parent does.
 *
 * <p>House rule: ../worker.py's.
 */
public final class Worker implements ConsumerRebalanceListener {
    private static final Duration POLL = Duration.ofMillis(50);
    private static final long REPORT_INTERVAL_NS = 250_000_000L;
    private static final Map<String, String> ASSIGNORS = Map.of(
            "range", "org.apache.kafka.clients.consumer.RangeAssignor",
            "roundrobin", "org.apache.kafka.clients.consumer.RoundRobinAssignor",
            "sticky", "org.apache.kafka.clients.consumer.StickyAssignor",
            "cooperative-sticky", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");

    private static final ObjectMapper JSON = new ObjectMapper();
    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);

    private final String bootstrap;
    private final String topic;
    private final String pattern;
    private final boolean showsRecords;
    private final KafkaConsumer<byte[], byte[]> consumer;

    private Worker(JsonNode settings) {
        bootstrap = settings.get("bootstrap").asText();
        topic = settings.get("topic").asText();
        pattern = settings.get("pattern").isNull() ? null : settings.get("pattern").asText();
        showsRecords = settings.get("records").asBoolean();
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("group.id", settings.get("group").asText());
        if (!settings.get("group_instance_id").isNull()) {
            properties.put("group.instance.id", settings.get("group_instance_id").asText());
        }
        properties.put("max.poll.interval.ms", settings.get("rebalance_timeout_ms").asText());
        if (settings.get("protocol").asText().equals("consumer")) {
            properties.put("group.protocol", "consumer");
        } else {
            properties.put("session.timeout.ms", settings.get("session_timeout_ms").asText());
            properties.put("heartbeat.interval.ms", settings.get("heartbeat_interval_ms").asText());
            properties.put("partition.assignment.strategy", ASSIGNORS.get(settings.get("assignor").asText()));
        }
        properties.put("enable.auto.commit", System.getProperty("auto.commit", "false"));
        properties.put("auto.commit.interval.ms", "500");
        properties.put("auto.offset.reset", "earliest");
        properties.put("reconnect.backoff.max.ms", "500");
        // From release 4 on a consumer that finds no server forgets the topics it knew (KIP-899, KIP-1102): where the
        // one server restarts, the leader sees them change, and the group rebalances.
        properties.put("metadata.recovery.strategy", "none");
        JsonNode login = settings.get("login");
        if (!login.isNull()) {
            properties.put("security.protocol", "SASL_SSL");
            properties.put("ssl.truststore.type", "PEM");
            properties.put("ssl.truststore.location", login.get("ca").asText());
            properties.put("sasl.mechanism", login.get("mechanism").asText());
            properties.put("sasl.jaas.config", "org.apache.kafka.common.security.scram.ScramLoginModule required "
                    + "username=\"" + login.get("user").asText() + "\" "
                    + "password=\"" + login.get("password").asText() + "\";");
        }
        consumer = new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    /** The release of kafka-clients, as its jar says it. */
    private static String version() throws IOException {
        Properties jar = new Properties();
        try (InputStream file = KafkaConsumer.class.getResourceAsStream("/kafka/kafka-version.properties")) {
            jar.load(file);
        }
        return jar.getProperty("version");
    }

    public static void main(String[] arguments) throws IOException {
        Queue<JsonNode> commands = readCommands();
        emit("started", Map.of(
                "client", "kafka-clients",
                "version", version(),
                "pid", ProcessHandle.current().pid()));
        try {
            Worker worker = new Worker(JSON.readTree(arguments[0]));
            worker.subscribe();
            worker.pollUntilClosed(commands);
        } catch (KafkaException error) {
            emit("fatal", failure(error));
            Runtime.getRuntime().halt(1); // as it stands: nothing is closed, nobody leaves
        }
    }

    private void subscribe() {
        if (pattern == null) {
            consumer.subscribe(List.of(topic), this);
            return;
        }
        try { // releases before 4 have no patterns that the server resolves
            Class<?> type = Class.forName("org.apache.kafka.clients.consumer.SubscriptionPattern");
            consumer.getClass()
                    .getMethod("subscribe", type, ConsumerRebalanceListener.class)
                    .invoke(consumer, type.getConstructor(String.class).newInstance(pattern), this);
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }

    private void pollUntilClosed(Queue<JsonNode> commands) {
        Map<String, Object> membership = Map.of();
        double fetchesBefore = 0;
        boolean fetched = false;
        long reported = System.nanoTime() - REPORT_INTERVAL_NS;
        while (true) {
            ConsumerRecords<byte[], byte[]> consumed = consumer.poll(POLL);
            if (showsRecords && !consumed.isEmpty()) {
                emit("records", Map.of("records", lines(consumed)));
            }
            Map<String, Object> now = membership();
            if (!now.equals(membership)) {
                membership = now;
                fetched = false;
                fetchesBefore = fetchCount();
                emit("membership", now);
            }
            if (!fetched && !consumer.assignment().isEmpty() && fetchCount() > fetchesBefore) {
                Map<String, Long> highWatermarks = highWatermarks();
                fetched = highWatermarks.size() == consumer.assignment().size();
                if (fetched) {
                    emit("fetched", Map.of("high_watermarks", highWatermarks));
                }
            }
            if (System.nanoTime() - reported >= REPORT_INTERVAL_NS) {
                reported = System.nanoTime();
                emit("polled", Map.of());
            }
            for (JsonNode command = commands.poll(); command != null; command = commands.poll()) {
                if (command.get("do").asText().equals("close")) {
                    emit("closing", Map.of());
                    consumer.close();
                    emit("closed", Map.of());
                    return;
                }
                obey(command);
            }
        }
    }

    private void obey(JsonNode command) {
        switch (command.get("do").asText()) {
            case "commit":
                commit(command.get("offsets"));
                break;
            case "read_committed":
                readCommitted(command.get("partitions"));
                break;
            case "produce":
                produce(command.get("records"), command.get("compression").asText());
                break;
            default:
                throw new IllegalArgumentException(command.toString());
        }
    }

    private void commit(JsonNode wanted) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        wanted.fieldNames().forEachRemaining(partition -> offsets.put(
                new TopicPartition(topic, Integer.parseInt(partition)),
                new OffsetAndMetadata(wanted.get(partition).get(0).asLong(), wanted.get(partition).get(1).asText())));
        try {
            consumer.commitSync(offsets);
        } catch (KafkaException error) {
            emit("commit_failed", failure(error));
            if (error instanceof FencedInstanceIdException) {
                throw error;
            }
            return;
        }
        emit("committed", Map.of("generation", consumer.groupMetadata().generationId(), "offsets", wanted));
    }

    private void readCommitted(JsonNode partitions) {
        Set<TopicPartition> asked = new HashSet<>();
        partitions.forEach(partition -> asked.add(new TopicPartition(topic, partition.asInt())));
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(asked);
        Map<String, Object> found = new HashMap<>();
        for (TopicPartition each : asked) {
            OffsetAndMetadata value = committed.get(each);
            found.put(
                    Integer.toString(each.partition()),
                    value == null ? null : List.of(value.offset(), value.metadata()));
        }
        emit("read_committed", Map.of("offsets", found));
    }

    /** With idempotence, as is the client's default. */
    private void produce(JsonNode records, String compression) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("compression.type", compression);
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (JsonNode each : records) {
                List<Header> headers = new ArrayList<>();
                each.get(2).forEach(header ->
                        headers.add(new RecordHeader(header.get(0).asText(), octets(header.get(1)))));
                sent.add(producer.send(
                        new ProducerRecord<>(topic, null, octets(each.get(0)), octets(each.get(1)), headers)));
            }
            producer.flush();
            for (Future<RecordMetadata> each : sent) {
                each.get();
            }
        } catch (ExecutionException error) {
            emit("produce_failed", failure((KafkaException) error.getCause()));
            return;
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
        emit("produced", Map.of("count", records.size()));
    }

    /** Partition, offset and record of each. */
    private static List<Object> lines(ConsumerRecords<byte[], byte[]> consumed) {
        List<Object> found = new ArrayList<>();
        for (ConsumerRecord<byte[], byte[]> each : consumed) {
            List<Object> headers = new ArrayList<>();
            for (Header header : each.headers()) {
                headers.add(Arrays.asList(header.key(), header.value()));
            }
            found.add(List.of(each.partition(), each.offset(), Arrays.asList(each.key(), each.value(), headers)));
        }
        return found;
    }

    private static byte[] octets(JsonNode base64) {
        return base64.isNull() ? null : Base64.getDecoder().decode(base64.asText());
    }

    private Map<String, Object> membership() {
        ConsumerGroupMetadata metadata = consumer.groupMetadata();
        return Map.of(
                "generation", metadata.generationId(),
                "member_id", metadata.memberId(),
                "partitions", numbers(consumer.assignment()));
    }

    /** Of the partitions that have one. The client asks ListOffsets as well, so this alone doesn't show a Fetch. */
    private Map<String, Long> highWatermarks() {
        Map<String, Long> found = new HashMap<>();
        for (TopicPartition each : consumer.assignment()) {
            try {
                OptionalLong lag = consumer.currentLag(each);
                if (lag.isPresent()) {
                    found.put(Integer.toString(each.partition()), consumer.position(each) + lag.getAsLong());
                }
            } catch (IllegalStateException gone) {
                // With the consumer protocol, partitions go at any time: the client's own thread takes them away.
            }
        }
        return found;
    }

    /** How many Fetches were answered so far. */
    private double fetchCount() {
        for (Map.Entry<MetricName, ? extends Metric> each : consumer.metrics().entrySet()) {
            MetricName name = each.getKey();
            if (name.name().equals("fetch-total") && name.group().equals("consumer-fetch-manager-metrics")) {
                return (double) each.getValue().metricValue();
            }
        }
        return 0;
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        emit("assigned", Map.of("partitions", numbers(partitions)));
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        emit("revoked", Map.of("partitions", numbers(partitions)));
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        emit("lost", Map.of("partitions", numbers(partitions)));
    }

    /** Those of the topic. */
    private List<Integer> numbers(Collection<TopicPartition> partitions) {
        List<Integer> found = new ArrayList<>();
        for (TopicPartition each : partitions) {
            if (each.topic().equals(topic)) {
                found.add(each.partition());
            }
        }
        found.sort(null);
        return found;
    }

    private static Map<String, Object> failure(KafkaException error) {
        Errors known = Errors.forException(error);
        boolean named = known != Errors.UNKNOWN_SERVER_ERROR;
        return Map.of(
                "error", named ? known.name() : error.getClass().getSimpleName(),
                "text", String.valueOf(error.getMessage()));
    }

    /** One line, one write; `at` is the machine's monotonic clock in seconds, as Python reads it. */
    private static synchronized void emit(String event, Map<String, ?> fields) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("event", event);
        line.put("at", System.nanoTime() / 1e9);
        line.putAll(fields);
        try {
            OUT.println(JSON.writeValueAsString(line));
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
        OUT.flush();
    }

    private static Queue<JsonNode> readCommands() {
        Queue<JsonNode> commands = new ConcurrentLinkedQueue<>();
        Thread reader = new Thread(() -> {
            try (BufferedReader lines =
                    new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
                for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                    commands.add(JSON.readTree(line));
                }
            } catch (IOException error) {
                // Nobody is there to hear of it.
            }
            Runtime.getRuntime().halt(1);
        });
        reader.setDaemon(true);
        reader.start();
        return commands;
    }
}
