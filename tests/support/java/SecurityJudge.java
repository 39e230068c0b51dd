import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import javax.security.auth.login.AppConfigurationEntry;
import javax.security.auth.login.Configuration;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.security.kerberos.KerberosName;
import org.apache.kafka.common.security.kerberos.KerberosShortNamer;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/**
 * Answers questions about texts of security, one a line: "jaas TEXT", "name DER", "rules RULES NAME", "local REALM RULES PRINCIPAL" with a
 * rule a line; all arguments in base64. An answer is "=" and the result, "!" and the message of the refusal, or "-" when no rule matches;
 * result and message are in base64.
 */
public class SecurityJudge {
    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            out.println(answer(line.split(" ", -1)));
        }
        out.flush();
    }

    private static String answer(String[] words) {
        try {
            switch (words[0]) {
                case "jaas":
                    return "=" + encoded(jaas(text(words[1])));
                case "name":
                    return "=" + encoded(new X500Principal(Base64.getDecoder().decode(words[1])).getName());
                case "rules":
                    return "=" + encoded(SslPrincipalMapper.fromRules(text(words[1])).getName(text(words[2])));
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
        List<String> found = new ArrayList<>();
        for (AppConfigurationEntry entry : configuration.getAppConfigurationEntry("Context")) {
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
