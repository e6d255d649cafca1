import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * A worker of a share group: prints the value of each record that it gets ("got ..."), and of each of which a broker has
 * confirmed that it is acknowledged ("done ..."). In the explicit mode, it rejects values that end with 999.
 *
 * Arguments: bootstrap servers, group, topic, and the acknowledgement mode: implicit or explicit.
 */
public final class ShareWorker {
    public static void main(String[] args) {
        Map<String, Object> config = Map.of(
            "bootstrap.servers", args[0], "group.id", args[1], "share.acknowledgement.mode", args[3]);
        try (KafkaShareConsumer<String, String> consumer =
                new KafkaShareConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(args[2]));
            while (true) {
                List<String> values = new ArrayList<>();
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(500))) {
                    values.add(record.value());
                    if (args[3].equals("explicit")) {
                        boolean bad = record.value().endsWith("999");
                        consumer.acknowledge(record, bad ? AcknowledgeType.REJECT : AcknowledgeType.ACCEPT);
                    }
                }
                say("got", values);
                if (!values.isEmpty()
                        && consumer.commitSync().values().stream().allMatch(error -> error.isEmpty())) {
                    say("done", values);
                }
            }
        }
    }

    private static void say(String word, List<String> values) {
        StringBuilder lines = new StringBuilder();
        for (String value : values) {
            lines.append(word).append(' ').append(value).append('\n');
        }
        System.out.print(lines);
        System.out.flush();
    }
}
