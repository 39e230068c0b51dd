import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.X509Certificate;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import javax.net.ssl.TrustManagerFactory;
import javax.net.ssl.X509TrustManager;
import javax.security.auth.login.AppConfigurationEntry;
import javax.security.auth.login.Configuration;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.SslConfigs;
import org.apache.kafka.common.security.kerberos.KerberosName;
import org.apache.kafka.common.security.kerberos.KerberosShortNamer;
import org.apache.kafka.common.security.ssl.SslFactory;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/**
 * Answers questions about security, one a line: "jaas TEXT", "file TEXT", "name DER", "rules RULES NAME", "local REALM RULES PRINCIPAL" with
 * a rule a line, "stores AUTH STORES", and "exchange AUTH STORES STORES" with the old and the new ones. STORES are three arguments: key,
 * certificates, and trusted certificates or nothing, in PEM. AUTH is a value of ssl.client.auth. "trusted TYPE PASSWORD STORE" is answered by
 * the certificates that count as trusted, a line each; the password may be nothing. All arguments are in base64. An answer is "=" and the
 * result, "!" and the message of the refusal, or "-" when no rule matches; result and message are in base64.
 */
public class SecurityJudge {
    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            out.println(answer(line.split(" ", -1)));
            if (!questions.ready()) {
                out.flush();
            }
        }
        out.flush();
    }

    private static String answer(String[] words) {
        try {
            switch (words[0]) {
                case "jaas":
                    return "=" + encoded(jaas(text(words[1])));
                case "file":
                    return "=" + encoded(file(Base64.getDecoder().decode(words[1])));
                case "name":
                    return "=" + encoded(new X500Principal(Base64.getDecoder().decode(words[1])).getName());
                case "rules":
                    return "=" + encoded(SslPrincipalMapper.fromRules(text(words[1])).getName(text(words[2])));
                case "stores":
                    factory().configure(stores(text(words[1]), words, 2));
                    return "=";
                case "exchange":
                    SslFactory running = factory();
                    running.configure(stores(text(words[1]), words, 2));
                    running.validateReconfiguration(stores(text(words[1]), words, 5));
                    return "=";
                case "trusted":
                    return "=" + encoded(trusted(text(words[1]), text(words[2]), Base64.getDecoder().decode(words[3])));
                case "local":
                    return "=" + encoded(local(text(words[1]), text(words[2]), text(words[3])));
                default:
                    throw new IllegalStateException(words[0]);
            }
        } catch (SslPrincipalMapper.NoMatchingRule | org.apache.kafka.common.security.kerberos.NoMatchingRule none) {
            return "-";
        } catch (InvocationTargetException refused) {
            return "!" + encoded(String.valueOf(refused.getCause().getMessage()));
        } catch (Exception refused) {
            return "!" + encoded(String.valueOf(refused.getMessage()));
        }
    }

    /** Lines "module flag", each followed by a line for each option. */
    private static String jaas(String text) throws Exception {
        Constructor<?> made = Class.forName("org.apache.kafka.common.security.JaasConfig").getDeclaredConstructor(String.class, String.class);
        made.setAccessible(true);
        Configuration configuration = (Configuration) made.newInstance("Context", text);
        return String.join("\n", lines(Arrays.asList(configuration.getAppConfigurationEntry("Context"))));
    }

    /** A line "{NAME" for each section, followed by its entries; without the sections that have no name. */
    @SuppressWarnings("unchecked")
    private static String file(byte[] content) throws Exception {
        Path path = Files.createTempFile("judged", ".jaas");
        try {
            Files.write(path, content);
            Class<?> kind = Class.forName("sun.security.provider.ConfigFile$Spi");
            Object read = kind.getConstructor(URI.class).newInstance(path.toUri());
            Field field = kind.getDeclaredField("configuration");
            field.setAccessible(true);
            Map<String, String> sections = new TreeMap<>();
            ((Map<String, List<AppConfigurationEntry>>) field.get(read)).forEach((name, entries) -> {
                if (name != null) {
                    List<String> lines = lines(entries);
                    lines.add(0, "{" + encoded(name));
                    sections.put(encoded(name), String.join("\n", lines));
                }
            });
            return String.join("\n", sections.values());
        } finally {
            Files.delete(path);
        }
    }

    private static List<String> lines(List<AppConfigurationEntry> entries) {
        List<String> found = new ArrayList<>();
        for (AppConfigurationEntry entry : entries) {
            String flag = entry.getControlFlag().toString();
            found.add(encoded(entry.getLoginModuleName()) + " " + flag.substring(flag.lastIndexOf(' ') + 1).toUpperCase());
            Map<String, String> options = new TreeMap<>();
            entry.getOptions().forEach((key, value) -> {
                if (key != null) {
                    options.put(encoded(key), encoded((String) value));
                }
            });
            options.forEach((key, value) -> found.add(key + "=" + value));
        }
        return found;
    }

    /** Of the listener between brokers. The type of the first argument has another name in later releases. */
    private static SslFactory factory() throws Exception {
        for (Constructor<?> each : SslFactory.class.getConstructors()) {
            if (each.getParameterCount() == 3) {
                for (Object mode : each.getParameterTypes()[0].getEnumConstants()) {
                    if (((Enum<?>) mode).name().equals("SERVER")) {
                        return (SslFactory) each.newInstance(mode, null, true);
                    }
                }
            }
        }
        throw new IllegalStateException("SslFactory has no such constructor");
    }

    private static Map<String, Object> stores(String clientAuth, String[] words, int first) {
        Map<String, String> given = new HashMap<>();
        given.put("ssl.keystore.type", "PEM");
        given.put("ssl.keystore.key", text(words[first]));
        given.put("ssl.keystore.certificate.chain", text(words[first + 1]));
        if (!words[first + 2].isEmpty()) {
            given.put("ssl.truststore.type", "PEM");
            given.put("ssl.truststore.certificates", text(words[first + 2]));
        }
        ConfigDef definition = new ConfigDef();
        SslConfigs.addClientSslSupport(definition);
        Map<String, Object> found = new HashMap<>(definition.parse(given));
        found.put("ssl.client.auth", clientAuth);
        return found;
    }

    private static String trusted(String type, String password, byte[] content) throws Exception {
        KeyStore store = KeyStore.getInstance(type);
        store.load(new ByteArrayInputStream(content), password.isEmpty() ? null : password.toCharArray());
        TrustManagerFactory factory = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        factory.init(store);
        List<String> found = new ArrayList<>();
        for (X509Certificate each : ((X509TrustManager) factory.getTrustManagers()[0]).getAcceptedIssuers()) {
            found.add(Base64.getEncoder().encodeToString(each.getEncoded()));
        }
        return String.join("\n", found);
    }

    private static String local(String realm, String rules, String principal) throws Exception {
        return KerberosShortNamer.fromUnparsedRules(realm, Arrays.asList(rules.split("\n", -1))).shortName(KerberosName.parse(principal));
    }

    private static String text(String word) {
        return new String(Base64.getDecoder().decode(word), StandardCharsets.UTF_8);
    }

    private static String encoded(String text) {
        return Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
    }
}
