import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Transactional producers and their consumers, driven through standard input, each under a name.
 *
 * A call is a line of words between tabs; the answer is a line: `ok` and the records found, or `error` and the class of the exception.
 * The first argument of the program is the broker's address.
 */
public final class TransactionalClient {
    private static final long SECONDS = 90;

    private final String bootstrap;
    private final Map<String, KafkaProducer<String, String>> producers = new HashMap<>();
    private final Map<String, List<Future<RecordMetadata>>> sent = new HashMap<>();
    private final Map<String, KafkaConsumer<String, String>> members = new HashMap<>();

    private TransactionalClient(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    public static void main(String[] arguments) throws Exception {
        TransactionalClient client = new TransactionalClient(arguments[0]);
        BufferedReader calls = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = calls.readLine()) != null) {
            String answer;
            try {
                answer = "ok" + client.call(line.split("\t", -1));
            } catch (Exception failure) {
                Throwable cause = failure instanceof java.util.concurrent.ExecutionException ? failure.getCause() : failure;
                answer = "error\t" + cause.getClass().getSimpleName() + "\t" + String.valueOf(cause.getMessage()).replaceAll("\\s", " ");
            }
            System.out.println(answer);
        }
    }

    /** What is found, each record after a tab. */
    private String call(String[] words) throws Exception {
        String name = words[1];
        switch (words[0]) {
            case "producer":
                producers.put(name, producer(words[2], words[3]));
                sent.put(name, new ArrayList<>());
                producers.get(name).initTransactions();
                return "";
            case "begin":
                sent.get(name).clear();
                producers.get(name).beginTransaction();
                return "";
            case "send":
                sent.get(name).add(producers.get(name).send(new ProducerRecord<>(words[2], Integer.parseInt(words[3]), null, words[4])));
                return "";
            case "flush":
                producers.get(name).flush();
                for (Future<RecordMetadata> each : sent.get(name)) {
                    each.get();
                }
                return "";
            case "offsets":
                TopicPartition partition = new TopicPartition(words[3], Integer.parseInt(words[4]));
                OffsetAndMetadata offset = new OffsetAndMetadata(Long.parseLong(words[5]));
                producers.get(name).sendOffsetsToTransaction(Map.of(partition, offset), members.get(words[2]).groupMetadata());
                return "";
            case "commit":
                producers.get(name).commitTransaction();
                return "";
            case "abort":
                producers.get(name).abortTransaction();
                return "";
            case "close":
                producers.remove(name).close(Duration.ofMillis(Long.parseLong(words[2])));
                return "";
            case "member":
                members.put(name, consumer(words[3], "read_committed"));
                members.get(name).subscribe(List.of(words[2]));
                return "";
            case "poll":
                return found(members.get(name).poll(Duration.ofMillis(100)));
            case "leave":
                members.remove(name).close();
                return "";
            case "read":
                return read(words[2], Integer.parseInt(words[3]), words[4]);
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private String read(String topic, int count, String level) {
        List<TopicPartition> partitions = new ArrayList<>();
        for (int at = 0; at < count; at++) {
            partitions.add(new TopicPartition(topic, at));
        }
        StringBuilder found = new StringBuilder();
        try (KafkaConsumer<String, String> consumer = consumer("unused", level)) {
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            while (partitions.stream().anyMatch(each -> consumer.position(each) < ends.get(each))) {
                found.append(found(consumer.poll(Duration.ofMillis(100))));
            }
        }
        return found.toString();
    }

    private static String found(Iterable<ConsumerRecord<String, String>> records) {
        StringBuilder found = new StringBuilder();
        for (ConsumerRecord<String, String> each : records) {
            found.append('\t').append(each.partition()).append(' ').append(each.offset()).append(' ').append(each.value());
        }
        return found.toString();
    }

    private KafkaProducer<String, String> producer(String transactionalId, String timeoutMs) {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("transactional.id", transactionalId);
        config.put("transaction.timeout.ms", timeoutMs);
        config.put("max.block.ms", String.valueOf(SECONDS * 1000));
        return new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
    }

    private KafkaConsumer<String, String> consumer(String group, String level) {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("group.id", group);
        config.put("isolation.level", level);
        config.put("enable.auto.commit", "false");
        config.put("auto.offset.reset", "earliest");
        return new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
    }
}
