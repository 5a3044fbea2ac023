import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.QueryableStoreTypes;

/**
 * A Kafka Streams application: it counts the words of a topic's records in a store, and writes counts to another topic.
 *
 * <p>Words travel over a repartition topic, counts are kept in RocksDB and in a changelog topic. The argument is JSON:
 * bootstrap, application, from, to, folder and guarantee. instance names the static member that its one thread is, with
 * session_timeout_ms; without it the thread is a member of a streams group (KIP-1071). Commands come as lines on standard input: `counts` is answered with those that this instance
 * has, `close` ends it. What it prints is JSON lines: started; state, for each change; restored, with how many records of
 * a changelog were read; counts; closed.
 *
 * <p>House rule: nothing is tuned but intervals that would make a test wait.
 */
public final class WordCount {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final String STORE = "word-counts";

    private WordCount() {}

    public static void main(String[] arguments) throws IOException {
        JsonNode told = JSON.readTree(arguments[0]);
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(told.get("from").asText(), Consumed.with(Serdes.String(), Serdes.String()))
                .flatMapValues(line -> Arrays.asList(line.split(" ")))
                .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
                .count(Materialized.as(STORE))
                .toStream()
                .to(told.get("to").asText(), Produced.with(Serdes.String(), Serdes.Long()));

        Properties properties = new Properties();
        properties.put("bootstrap.servers", told.get("bootstrap").asText());
        properties.put("application.id", told.get("application").asText());
        properties.put("state.dir", told.get("folder").asText());
        properties.put("processing.guarantee", told.get("guarantee").asText());
        properties.put("num.stream.threads", "1");
        properties.put("commit.interval.ms", "200");
        properties.put("statestore.cache.max.bytes", "0");
        properties.put("repartition.purge.interval.ms", "1000");
        // By default a client of Kafka 4 that finds no server forgets its topics, and Streams ends without them.
        properties.put("metadata.recovery.strategy", "none");
        if (told.has("instance")) {
            properties.put("main.consumer.group.instance.id", told.get("instance").asText());
            properties.put("consumer.session.timeout.ms", told.get("session_timeout_ms").asText());
            properties.put("consumer.heartbeat.interval.ms", "500");
        } else {
            properties.put("group.protocol", "streams");
        }
        properties.put("consumer.auto.offset.reset", "earliest");
        KafkaStreams streams = new KafkaStreams(builder.build(), properties);
        streams.setStateListener((now, before) -> emit("state", Map.of("state", now.name())));
        streams.setGlobalStateRestoreListener(new StateRestoreListener() {
            @Override
            public void onRestoreStart(TopicPartition changelog, String store, long start, long end) {}

            @Override
            public void onBatchRestored(TopicPartition changelog, String store, long end, long count) {}

            @Override
            public void onRestoreEnd(TopicPartition changelog, String store, long count) {
                emit("restored", Map.of("partition", changelog.partition(), "count", count));
            }
        });
        emit("started", Map.of());
        streams.start();

        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String command = commands.readLine(); command != null; command = commands.readLine()) {
            if (command.equals("counts")) {
                emit("counts", Map.of("counts", counts(streams)));
            } else {
                streams.close(Duration.ofSeconds(20));
                emit("closed", Map.of());
                return;
            }
        }
        Runtime.getRuntime().halt(1);
    }

    /** Of the partitions that this instance has; none while they are being restored. */
    private static Map<String, Long> counts(KafkaStreams streams) {
        Map<String, Long> found = new TreeMap<>();
        try (KeyValueIterator<String, Long> all = streams.store(
                        StoreQueryParameters.fromNameAndType(STORE, QueryableStoreTypes.<String, Long>keyValueStore()))
                .all()) {
            while (all.hasNext()) {
                KeyValue<String, Long> each = all.next();
                found.put(each.key, each.value);
            }
        } catch (InvalidStateStoreException error) {
            return Map.of();
        }
        return found;
    }

    private static synchronized void emit(String event, Map<String, ?> fields) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("event", event);
        line.put("at", System.nanoTime() / 1e9);
        line.putAll(fields);
        try {
            System.out.println(JSON.writeValueAsString(line));
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }
}
