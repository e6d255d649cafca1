import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** The program of patient.py with the Java client: its argument is the settings, as JSON. */
public final class Patient {
    /** The end of standard input. */
    private static final String END = "";

    private final LinkedBlockingQueue<String> orders = new LinkedBlockingQueue<>();
    private final List<String> topics = new ArrayList<>();
    private final List<Integer> assigned = new ArrayList<>();
    private final boolean modern;
    private final JsonNode poison;
    private final boolean retries;
    private final long delayMs;
    private final boolean rewinds;
    private final boolean last;
    private final Map<String, Object> config;
    private final List<KafkaConsumer<byte[], byte[]>> old = new ArrayList<>();
    private KafkaConsumer<byte[], byte[]> consumer;
    private long revokingMs = 0;

    private Patient(JsonNode settings) {
        settings.get("topics").forEach(each -> topics.add(each.asText()));
        settings.get("assign").forEach(each -> assigned.add(each.asInt()));
        modern = settings.get("protocol").asText().equals("consumer");
        rewinds = settings.get("rewinds").asBoolean();
        last = settings.get("last").asBoolean();
        retries = !settings.get("retries").isNull();
        delayMs = settings.get("delay_ms").asLong();
        poison = settings.get(retries ? "retries" : "poison");
        config = new HashMap<>(Map.of(
            "bootstrap.servers", settings.get("bootstrap").asText(),
            "group.id", settings.get("group").asText(),
            "group.protocol", settings.get("protocol").asText(),
            "auto.offset.reset", settings.get("reset").asText(),
            "auto.commit.interval.ms", settings.get("commit_ms").asInt(),
            "enable.auto.commit", !last && poison.isNull() && settings.get("commits").asBoolean(),
            "max.poll.interval.ms", settings.get("poll_ms").asInt(),
            "metadata.max.age.ms", 1000));
        if (settings.get("committed").asBoolean()) {
            config.put("isolation.level", "read_committed");
        }
        if (!modern) {
            config.put("session.timeout.ms", settings.get("session_ms").asInt());
            config.put("heartbeat.interval.ms", 500);
        }
        if (!settings.get("assignor").isNull()) {
            String name = settings.get("assignor").asText().equals("range") ? "RangeAssignor" : "RoundRobinAssignor";
            config.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer." + name);
        }
        name(config, "client.id", settings.get("client_id"));
        name(config, "group.instance.id", settings.get("instance_id"));
        consumer = newConsumer();
    }

    private KafkaConsumer<byte[], byte[]> newConsumer() {
        return new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    public static void main(String[] args) throws IOException {
        Patient patient = new Patient(new ObjectMapper().readTree(args[0]));
        Thread reader = new Thread(patient::read);
        reader.setDaemon(true);
        reader.start();
        patient.run();
    }

    private static void name(Map<String, Object> config, String key, JsonNode name) {
        if (!name.isNull()) {
            config.put(key, name.asText());
        }
    }

    private void read() {
        try (BufferedReader lines = new BufferedReader(new InputStreamReader(System.in))) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                orders.add(line.strip());
            }
        } catch (IOException error) {
            // The end.
        }
        orders.add(END);
    }

    private void run() {
        if (assigned.isEmpty()) {
            subscribe(topics);
        } else {
            consumer.assign(assigned.stream().map(each -> new TopicPartition(topics.get(0), each)).toList());
        }
        String shown = null;
        boolean met = false;
        boolean others = false;
        while (true) {
            Map<TopicPartition, OffsetAndMetadata> lasts = new HashMap<>();
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                if (last) {
                    lasts.put(
                        new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset()));
                }
                if (poison.isNull()) {
                    continue;
                }
                if (record.partition() == poison.get(0).asInt() && record.offset() >= poison.get(1).asLong()) {
                    met = true;
                    continue;
                }
                others |= record.partition() != poison.get(0).asInt();
                consumer.commitSync(Map.of(
                    new TopicPartition(record.topic(), record.partition()),
                    new OffsetAndMetadata(record.offset() + 1)));
            }
            if (!lasts.isEmpty()) {
                consumer.commitSync(lasts);
            }
            if (met && retries) {
                met = false;
                sleep(delayMs);
                consumer.seek(new TopicPartition(topics.get(0), poison.get(0).asInt()), poison.get(1).asLong());
            } else if (met && others) {
                Runtime.getRuntime().halt(3);
            }
            String owned = owned();
            if (!owned.equals(shown)) {
                shown = owned;
                System.out.println(owned);
                System.out.flush();
            }
            String order = orders.poll();
            if (END.equals(order)) {
                break;
            }
            if (order != null) {
                obey(order.split(" "));
            }
        }
        consumer.close();
    }

    private String owned() {
        TreeSet<String> names = new TreeSet<>();
        consumer.assignment().forEach(each -> names.add('"' + each.topic() + "-" + each.partition() + '"'));
        return names.toString();
    }

    private void obey(String[] order) {
        switch (order[0]) {
            case "busy" -> sleep(Math.round(1000 * Double.parseDouble(order[1])));
            case "slow_revoke" -> revokingMs = Math.round(1000 * Double.parseDouble(order[1]));
            case "leak" -> {
                old.add(consumer);
                consumer = newConsumer();
                subscribe(topics);
            }
            case "exit" -> Runtime.getRuntime().halt(3);
            case "commit" -> consumer.commitSync(Map.of(
                new TopicPartition(topics.get(0), Integer.parseInt(order[1])),
                new OffsetAndMetadata(Long.parseLong(order[2]))));
            case "pause" -> consumer.pause(List.of(new TopicPartition(topics.get(0), Integer.parseInt(order[1]))));
            case "fall_behind" -> {
                sleep(Math.round(1000 * Double.parseDouble(order[1])));
                consumer.seekToEnd(List.of(new TopicPartition(topics.get(0), Integer.parseInt(order[2]))));
            }
            case "resubscribe" -> {
                consumer.unsubscribe();
                subscribe(topics);
            }
            case "subscribe" -> {
                consumer.unsubscribe();
                subscribe(List.of(order[1]));
            }
            default -> throw new IllegalArgumentException(order[0]);
        }
    }

    private void subscribe(List<String> names) {
        ConsumerRebalanceListener listener = new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> revoked) {
                long wait = revokingMs;
                revokingMs = 0;
                sleep(wait);
            }

            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> assigned) {
                if (rewinds) {
                    consumer.seekToBeginning(assigned);
                }
            }
        };
        if (!names.get(0).startsWith("^")) {
            consumer.subscribe(names, listener);
        } else if (modern) {
            consumer.subscribe(new SubscriptionPattern(names.get(0)), listener);
        } else {
            consumer.subscribe(Pattern.compile(names.get(0)), listener);
        }
    }

    private static void sleep(long milliseconds) {
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }
}
