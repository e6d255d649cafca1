import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataImage;
import org.apache.kafka.coordinator.group.Utils;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;
import org.apache.kafka.coordinator.group.modern.TopicIds;

/**
 * The group coordinator's own assignors, topic hashes and regular expressions, for others to compare with: a case as JSON
 * on each line of standard input, its result on a line of standard output.
 *
 * {"assignor": "uniform" | "range", "topics": {name: partitions}, "ids": {name: [msb, lsb]},
 *  "members": [{"id", "instance", "topics": [name, ...], "assigned": {name: [partition, ...]}}]}
 *   gives {member: {name: [partition, ...]}}; Kafka takes the members in the order of the case.
 * {"hashes": [{"name", "id": [msb, lsb], "racks": [[rack, ...], ...]}]} gives {"topics": {name: hash}, "group": hash}.
 * {"regex": pattern, "names": [name, ...]} gives {"matches": [name, ...]}, or {"matches": null, "error": text of the response} if it
 * does not compile.
 */
public final class ServerAssignors {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode asked = JSON.readTree(line);
            ObjectNode result = JSON.createObjectNode();
            if (asked.has("assignor"))
                assign(asked, result);
            else if (asked.has("hashes"))
                hash(asked.get("hashes"), result);
            else
                match(asked, result);
            System.out.println(JSON.writeValueAsString(result));
        }
    }

    private static Uuid uuid(JsonNode pair) {
        return new Uuid(pair.get(0).asLong(), pair.get(1).asLong());
    }

    private static void assign(JsonNode asked, ObjectNode result) {
        Map<String, Uuid> ids = new HashMap<>();
        Map<Uuid, String> names = new HashMap<>();
        Map<Uuid, Integer> counts = new HashMap<>();
        asked.get("topics").fields().forEachRemaining(topic -> {
            Uuid id = uuid(asked.get("ids").get(topic.getKey()));
            ids.put(topic.getKey(), id);
            names.put(id, topic.getKey());
            counts.put(id, topic.getValue().asInt());
        });
        TopicIds.TopicResolver resolver = new TopicIds.TopicResolver() {
            public CoordinatorMetadataImage image() { return CoordinatorMetadataImage.EMPTY; }
            public String name(Uuid id) { return names.get(id); }
            public Uuid id(String name) { return ids.get(name); }
            public void clear() { }
        };
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new LinkedHashMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        Set<Set<String>> subscriptions = new HashSet<>();
        for (JsonNode member : asked.get("members")) {
            String id = member.get("id").asText();
            Set<String> topics = new TreeSet<>();
            member.get("topics").forEach(topic -> topics.add(topic.asText()));
            subscriptions.add(topics);
            Map<Uuid, Set<Integer>> assigned = new HashMap<>();
            member.get("assigned").fields().forEachRemaining(topic -> {
                Set<Integer> partitions = new TreeSet<>();
                for (JsonNode partition : topic.getValue()) {
                    partitions.add(partition.asInt());
                    owners.computeIfAbsent(ids.get(topic.getKey()), __ -> new HashMap<>()).put(partition.asInt(), id);
                }
                assigned.put(ids.get(topic.getKey()), partitions);
            });
            members.put(id, new MemberSubscriptionAndAssignmentImpl(
                Optional.empty(),
                Optional.ofNullable(member.get("instance").textValue()),
                new TopicIds(topics, resolver),
                new Assignment(Collections.unmodifiableMap(assigned))));
        }
        ConsumerGroupPartitionAssignor assignor =
            asked.get("assignor").asText().equals("uniform") ? new UniformAssignor() : new RangeAssignor();
        SubscribedTopicDescriber describer = new SubscribedTopicDescriber() {
            public int numPartitions(Uuid id) { return counts.getOrDefault(id, -1); }
            public Set<String> racksForPartition(Uuid id, int partition) { return Set.of(); }
        };
        GroupAssignment assignment = assignor.assign(
            new GroupSpecImpl(
                Collections.unmodifiableMap(members),
                subscriptions.size() == 1 ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS,
                owners),
            describer);
        assignment.members().forEach((member, target) -> {
            ObjectNode topics = result.putObject(member);
            target.partitions().forEach((id, partitions) -> {
                var list = topics.putArray(names.get(id));
                new TreeSet<>(partitions).forEach(list::add);
            });
        });
    }

    private static void hash(JsonNode topics, ObjectNode result) {
        Map<String, CoordinatorMetadataImage.TopicMetadata> metadata = new HashMap<>();
        for (JsonNode topic : topics) {
            String name = topic.get("name").asText();
            metadata.put(name, new CoordinatorMetadataImage.TopicMetadata() {
                public String name() { return name; }
                public Uuid id() { return uuid(topic.get("id")); }
                public int partitionCount() { return topic.get("racks").size(); }
                public List<String> partitionRacks(int partition) {
                    List<String> racks = new ArrayList<>();
                    topic.get("racks").get(partition).forEach(rack -> racks.add(rack.asText()));
                    return racks;
                }
            });
        }
        CoordinatorMetadataImage image = (CoordinatorMetadataImage) Proxy.newProxyInstance(
            ServerAssignors.class.getClassLoader(),
            new Class<?>[] {CoordinatorMetadataImage.class},
            (proxy, method, args) -> Optional.ofNullable(metadata.get((String) args[0])));
        Map<String, Long> hashes = new HashMap<>();
        ObjectNode each = result.putObject("topics");
        for (String name : metadata.keySet()) {
            hashes.put(name, Utils.computeTopicHash(name, image));
            each.put(name, hashes.get(name));
        }
        result.put("group", Utils.computeGroupHash(hashes));
    }

    private static void match(JsonNode asked, ObjectNode result) {
        String regex = asked.get("regex").asText();
        com.google.re2j.Pattern pattern;
        try {
            pattern = com.google.re2j.Pattern.compile(regex);
        } catch (com.google.re2j.PatternSyntaxException error) {
            result.putNull("matches");
            result.put("error", String.format(
                "SubscribedTopicRegex `%s` is not a valid regular expression: %s.", regex, error.getDescription()));
            return;
        }
        var matches = result.putArray("matches");
        for (JsonNode name : asked.get("names"))
            if (pattern.matcher(name.asText()).matches())
                matches.add(name.asText());
    }
}
