import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * Kafka's own assignors for others to compare with: a case as JSON on each line of standard input, its result on a line
 * of standard output.
 *
 * A case is {"assignor": class, "topics": {name: [[rack, ...], ...]}, "members": [{"id", "instance", "subscription"}]}
 * where a subscription is the member's blob in base64; the result is {member: [[topic, partition], ...]}, or {"error"}.
 * A case with "assigned": [[topic, partition], ...] and "generation" instead asks for the user data after that
 * assignment: {"user_data": base64}.
 */
public final class Assignors {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ObjectNode result = JSON.createObjectNode();
            try {
                answer(JSON.readTree(line), result);
            } catch (RuntimeException error) {
                result.put("error", error.toString());
            }
            System.out.println(JSON.writeValueAsString(result));
        }
    }

    private static void answer(JsonNode asked, ObjectNode result) throws Exception {
        // A new one for each case: they remember the newest generation that they have seen.
        ConsumerPartitionAssignor assignor = (ConsumerPartitionAssignor) Class
            .forName("org.apache.kafka.clients.consumer." + asked.get("assignor").asText())
            .getDeclaredConstructor().newInstance();
        if (asked.has("assigned")) {
            List<TopicPartition> partitions = new ArrayList<>();
            for (JsonNode tp : asked.get("assigned"))
                partitions.add(new TopicPartition(tp.get(0).asText(), tp.get(1).asInt()));
            int generation = asked.get("generation").asInt();
            assignor.onAssignment(new Assignment(partitions), new ConsumerGroupMetadata("g", generation, "m", Optional.empty()));
            ByteBuffer data = assignor.subscriptionUserData(Set.of());
            byte[] bytes = new byte[data.remaining()];
            data.get(bytes);
            result.put("user_data", Base64.getEncoder().encodeToString(bytes));
            return;
        }
        Map<String, Assignment> assignments =
            assignor.assign(cluster(asked.get("topics")), new GroupSubscription(subscriptions(asked.get("members")))).groupAssignment();
        for (Map.Entry<String, Assignment> entry : assignments.entrySet()) {
            ArrayNode share = result.putArray(entry.getKey());
            for (TopicPartition tp : entry.getValue().partitions())
                share.addArray().add(tp.topic()).add(tp.partition());
        }
    }

    private static Cluster cluster(JsonNode topics) {
        // One broker in each rack, and one without a rack.
        Map<String, Node> brokers = new HashMap<>();
        Node unknown = new Node(0, "localhost", 9092);
        List<PartitionInfo> partitions = new ArrayList<>();
        topics.fields().forEachRemaining(topic -> {
            int number = 0;
            for (JsonNode racks : topic.getValue()) {
                List<Node> replicas = new ArrayList<>();
                for (JsonNode rack : racks)
                    replicas.add(brokers.computeIfAbsent(
                        rack.asText(), name -> new Node(brokers.size() + 1, "localhost", 9092, name)));
                if (replicas.isEmpty())
                    replicas.add(unknown);
                Node[] nodes = replicas.toArray(new Node[0]);
                partitions.add(new PartitionInfo(topic.getKey(), number++, nodes[0], nodes, nodes));
            }
        });
        Set<Node> nodes = new HashSet<>(brokers.values());
        nodes.add(unknown);
        return new Cluster("cluster", nodes, partitions, Set.of(), Set.of());
    }

    private static Map<String, Subscription> subscriptions(JsonNode members) {
        // As the leader of a group does it (ConsumerCoordinator.onLeaderElected).
        Map<String, Subscription> subscriptions = new HashMap<>();
        for (JsonNode member : members) {
            byte[] blob = Base64.getDecoder().decode(member.get("subscription").asText());
            Subscription subscription = ConsumerProtocol.deserializeSubscription(ByteBuffer.wrap(blob));
            if (member.hasNonNull("instance"))
                subscription.setGroupInstanceId(Optional.of(member.get("instance").asText()));
            subscriptions.put(member.get("id").asText(), subscription);
        }
        return subscriptions;
    }
}
