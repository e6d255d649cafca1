import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.server.config.DynamicBrokerConfig;

/** Prints every configuration key of a broker: name, type, default and scope of dynamic changes, with tabs between. */
public class BrokerKeys {
    public static void main(String[] arguments) throws Exception {
        ConfigDef keys = (ConfigDef) Class.forName("kafka.server.KafkaConfig").getMethod("configDef").invoke(null);
        Map<?, ?> scopes = DynamicBrokerConfig.dynamicConfigUpdateModes();
        for (ConfigDef.ConfigKey key : new TreeMap<>(keys.configKeys()).values()) {
            boolean unset = key.defaultValue == null || key.defaultValue == ConfigDef.NO_DEFAULT_VALUE;
            String value = unset ? "" : ConfigDef.convertToString(key.defaultValue, key.type);
            Object scope = scopes.containsKey(key.name) ? scopes.get(key.name) : "read-only";
            System.out.println(String.join("\t", key.name, key.type.name(), value, scope.toString()));
        }
    }
}
