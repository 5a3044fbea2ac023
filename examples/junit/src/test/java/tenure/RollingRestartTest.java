package tenure;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

class RollingRestartTest {
    @RegisterExtension static final Control CONTROL = new Control();

    private final List<Worker> started = new ArrayList<>();

    /** Stands for your own code: a static member that consumes, on a thread of its own. */
    private final class Worker {
        private final KafkaConsumer<String, String> consumer;
        private final Thread thread = new Thread(this::run);

        Worker(String name) {
            consumer = consumer(name);
            thread.start();
            started.add(this);
        }

        private void run() {
            try (consumer) {
                consumer.subscribe(List.of("orders"));
                while (true) {
                    consumer.poll(Duration.ofSeconds(1));
                }
            } catch (WakeupException stopped) {
                // Closing is all that is left to do.
            }
        }

        void stop() throws InterruptedException {
            consumer.wakeup();
            thread.join();
        }
    }

    private static KafkaConsumer<String, String> consumer(String name) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", CONTROL.bootstrapServers());
        settings.put("client.id", name);
        settings.put("group.id", "workers");
        settings.put("group.instance.id", name);
        settings.put("heartbeat.interval.ms", 100);
        settings.put("request.timeout.ms", 1000);
        settings.put("enable.auto.commit", false);
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    @AfterEach
    void stopWorkers() throws InterruptedException {
        for (Worker worker : started) {
            worker.stop();
        }
    }

    @Test
    void aRollingRestartMovesNothing() throws InterruptedException {
        CONTROL.post("/v1/topics", "{\"name\": \"orders\", \"partitions\": 12}");
        List<Worker> workers = new ArrayList<>();
        for (int index = 0; index < 3; index++) {
            workers.add(new Worker("worker-" + index));
        }
        CONTROL.group("workers", "wait", "{\"state\": \"Stable\", \"members\": 3}");
        int since = Control.number(CONTROL.group("workers", "assert/at-rest", "{}"), "mark");
        for (int index = 0; index < 3; index++) {
            workers.get(index).stop();
            new Worker("worker-" + index);
            String wanted = "{\"restarts\": %d, \"no_rebalance_since\": %d}".formatted(index + 1, since);
            CONTROL.group("workers", "wait", wanted);
        }
        CONTROL.group("workers", "assert/no-rebalance", "{\"since\": %d}".formatted(since));
        AssertionError failed =
                assertThrows(
                        AssertionError.class, () -> CONTROL.group("workers", "assert/no-rebalance", "{\"since\": 0}"));
        String wanted = "(?s).*group workers rebalanced (once|\\d+ times), expected none\\b.*";
        assertTrue(failed.getMessage().matches(wanted), failed.getMessage());
    }

    @Test
    void aCommitWhoseAnswerIsLostIsCommitted() {
        CONTROL.post("/v1/topics", "{\"name\": \"orders\", \"partitions\": 1}");
        CONTROL.post("/v1/faults", "{\"text\": \"OffsetCommit client_id=worker-0 -> drop-response\"}");
        TopicPartition first = new TopicPartition("orders", 0);
        try (KafkaConsumer<String, String> consumer = consumer("worker-0")) {
            consumer.subscribe(List.of("orders"));
            while (consumer.assignment().isEmpty()) {
                consumer.poll(Duration.ofMillis(100));
            }
            consumer.commitSync(Map.of(first, new OffsetAndMetadata(7)), Duration.ofSeconds(30));
        }
        assertEquals(1, Control.number(CONTROL.get("/v1/faults"), "fired"));
        String group = CONTROL.get("/v1/groups/workers");
        assertEquals(7, Control.number(group, "offset"));
        assertEquals(1, Control.number(group, "generation"));
        CONTROL.post("/v1/reset", "{}");
        assertEquals("Dead", Control.text(CONTROL.get("/v1/groups/workers"), "state"));
    }
}
