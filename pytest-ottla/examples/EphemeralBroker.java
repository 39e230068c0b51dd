import java.io.BufferedReader;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Starts a broker for a test in Java, writes a record and reads it. The broker ends with this process. */
public class EphemeralBroker implements AutoCloseable {
    private static final Pattern BOOTSTRAP = Pattern.compile("\"bootstrap_servers\": \"([^\"]+)\"");

    private final Process process;
    private final BufferedReader answers;
    final String bootstrapServers;

    EphemeralBroker(String command) throws Exception {
        process = new ProcessBuilder(command, "serve", "--ephemeral", "--json").redirectError(ProcessBuilder.Redirect.DISCARD).start();
        answers = process.inputReader();
        String line = answers.readLine();
        Matcher found = BOOTSTRAP.matcher(String.valueOf(line));
        if (!found.find()) {
            throw new IllegalStateException("the broker did not start: " + line);
        }
        bootstrapServers = found.group(1);
    }

    /** Sends a command, for example {@code {"do": "advance", "ms": 25200000}}, and waits until it is carried out. */
    String order(String command) throws Exception {
        process.outputWriter().append(command).append('\n').flush();
        String answer = answers.readLine();
        if (answer == null || answer.contains("\"error\":")) {
            throw new IllegalStateException("the broker refused " + command + ": " + answer);
        }
        return answer;
    }

    @Override
    public void close() throws Exception {
        process.getOutputStream().close();
        process.waitFor();
    }

    public static void main(String[] arguments) throws Exception {
        try (EphemeralBroker broker = new EphemeralBroker(arguments.length > 0 ? arguments[0] : "ottla")) {
            Properties settings = new Properties();
            settings.put("bootstrap.servers", broker.bootstrapServers);
            settings.put("group.id", "readers");
            settings.put("auto.offset.reset", "earliest");
            broker.order("{\"do\": \"fail\", \"api\": \"PRODUCE\", \"error\": \"NOT_LEADER_OR_FOLLOWER\", \"times\": 2}"); // it is retried
            try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
                producer.send(new ProducerRecord<>("orders", "key", "value")).get();
            }
            broker.order("{\"do\": \"advance\", \"ms\": 25200000}"); // seven hours
            try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
                consumer.subscribe(List.of("orders"));
                for (long end = System.currentTimeMillis() + 30_000; System.currentTimeMillis() < end; ) {
                    var records = consumer.poll(Duration.ofMillis(100));
                    records.forEach(record -> System.out.println(record.key() + "=" + record.value()));
                    if (!records.isEmpty()) {
                        return;
                    }
                }
                throw new IllegalStateException("no record in 30 s");
            }
        }
    }
}
