// What Kafka's StandardAuthorizer decides.
//
// Reads lines from standard input, whose words are in base64: "new <allow everyone> <super users>", "acl <resource type>
// <name> <pattern> <principal> <host> <operation> <permission>", "ask <principal> <host> <operation> <resource type>
// <name>", "any <principal> <host> <operation> <resource type>". Prints "true" or "false" for each line that asks.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.internals.SecurityUtils;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

public class Authorizations {
    record Client(KafkaPrincipal principal, InetAddress clientAddress) implements AuthorizableRequestContext {
        public String listenerName() { return "PLAINTEXT"; }
        public SecurityProtocol securityProtocol() { return SecurityProtocol.SASL_PLAINTEXT; }
        public int requestType() { return 0; }
        public int requestVersion() { return 0; }
        public String clientId() { return ""; }
        public int correlationId() { return 0; }
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        StandardAuthorizer authorizer = null;
        Map<Uuid, StandardAcl> acls = new HashMap<>();
        boolean loaded = false;
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ", -1);
            for (int i = 1; i < words.length; i++)
                words[i] = new String(Base64.getDecoder().decode(words[i]), StandardCharsets.UTF_8);
            switch (words[0]) {
                case "new" -> {
                    authorizer = new StandardAuthorizer();
                    authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), new HashMap<>()));
                    authorizer.configure(Map.of("allow.everyone.if.no.acl.found", words[1], "super.users", words[2]));
                    acls.clear();
                    loaded = false;
                }
                case "acl" -> acls.put(Uuid.randomUuid(), new StandardAcl(
                        ResourceType.valueOf(words[1]), words[2], PatternType.valueOf(words[3]), words[4], words[5],
                        AclOperation.valueOf(words[6]), AclPermissionType.valueOf(words[7])));
                default -> {
                    if (!loaded) {
                        authorizer.loadSnapshot(acls);
                        authorizer.completeInitialLoad();
                        loaded = true;
                    }
                    Client client =
                            new Client(SecurityUtils.parseKafkaPrincipal(words[1]), InetAddress.getByName(words[2]));
                    AclOperation operation = AclOperation.valueOf(words[3]);
                    ResourceType type = ResourceType.valueOf(words[4]);
                    AuthorizationResult result = words[0].equals("any")
                            ? authorizer.authorizeByResourceType(client, operation, type)
                            : authorizer.authorize(client, List.of(new Action(
                                    operation, new ResourcePattern(type, words[5], PatternType.LITERAL), 1, true,
                                    true))).get(0);
                    System.out.println(result == AuthorizationResult.ALLOWED);
                }
            }
        }
    }
}
