// How Java writes the subjects of certificates, and what Kafka's rules make of names.
//
// Reads lines from standard input, "subject <base64 of DER>" or "rules <base64 of rules> <base64 of a name>", and prints
// a line for each: the result in base64, or "refused".
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.util.Base64;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

public class Principals {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ", -1);
            byte[] first = Base64.getDecoder().decode(words[1]);
            String result;
            if (words[0].equals("subject")) {
                result = ((X509Certificate) CertificateFactory.getInstance("X.509")
                        .generateCertificate(new ByteArrayInputStream(first))).getSubjectX500Principal().getName();
            } else {
                String name = new String(Base64.getDecoder().decode(words[2]), StandardCharsets.UTF_8);
                try {
                    result = SslPrincipalMapper.fromRules(new String(first, StandardCharsets.UTF_8)).getName(name);
                } catch (Exception refused) {
                    System.out.println("refused");
                    continue;
                }
            }
            System.out.println(Base64.getEncoder().encodeToString(result.getBytes(StandardCharsets.UTF_8)));
        }
    }
}
