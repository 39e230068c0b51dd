import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import kafka.consumer.Consumer;
import kafka.consumer.ConsumerConfig;
import kafka.consumer.ConsumerIterator;
import kafka.consumer.KafkaStream;
import kafka.consumer.Whitelist;
import kafka.javaapi.consumer.ConsumerConnector;
import kafka.javaapi.producer.Producer;
import kafka.message.MessageAndMetadata;
import kafka.producer.KeyedMessage;
import kafka.producer.ProducerConfig;

/**
 * Runs high-level consumers, which find brokers, each other and their offsets in ZooKeeper, and the Scala producer of their release.
 *
 * Arguments: ZooKeeper, bootstrap servers. A call is a line of words with tabs between them on standard input:
 *
 *   open NAME GROUP topic|pattern TOPIC zookeeper|kafka   the last word says where offsets are stored
 *   close NAME                                            commits what was printed
 *   send TOPIC ACKS CODEC COUNT                           keys are the codec and the number, values acks, codec and number
 *
 * Every call is answered by the line "done". Each record is a line: record NAME TOPIC PARTITION OFFSET KEY VALUE. The program ends with
 * standard input.
 */
public final class ZooKeeperClients {
    private static final Map<String, ConsumerConnector> consumers = new HashMap<>();

    public static void main(String[] words) {
        try {
            BufferedReader calls = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            for (String line = calls.readLine(); line != null; line = calls.readLine()) {
                run(words[0], words[1], line.split("\t", -1));
                say("done");
            }
            Runtime.getRuntime().halt(0);
        } catch (Throwable failure) {
            failure.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private static void run(String zookeeper, String bootstrap, String[] call) {
        switch (call[0]) {
            case "open":
                open(zookeeper, call[1], call[2], call[3].equals("pattern"), call[4], call[5]);
                break;
            case "close":
                ConsumerConnector consumer = consumers.remove(call[1]);
                consumer.commitOffsets(true);
                consumer.shutdown();
                break;
            case "send":
                send(bootstrap, call[1], call[2], call[3], Integer.parseInt(call[4]));
                break;
            default:
                throw new IllegalArgumentException(call[0]);
        }
    }

    private static void open(String zookeeper, String name, String group, boolean isPattern, String topic, String storage) {
        Properties settings = new Properties();
        settings.put("zookeeper.connect", zookeeper);
        settings.put("zookeeper.connection.timeout.ms", "60000");
        settings.put("zookeeper.session.timeout.ms", "10000");
        settings.put("group.id", group);
        settings.put("consumer.id", name);
        settings.put("auto.offset.reset", "smallest");
        settings.put("auto.commit.interval.ms", "3600000");
        settings.put("offsets.storage", storage);
        settings.put("dual.commit.enabled", "false");
        settings.put("offsets.channel.backoff.ms", "200");
        settings.put("rebalance.backoff.ms", "300");
        settings.put("rebalance.max.retries", "100");
        ConsumerConnector consumer = Consumer.createJavaConsumerConnector(new ConsumerConfig(settings));
        consumers.put(name, consumer);
        List<KafkaStream<byte[], byte[]>> streams = isPattern
            ? consumer.createMessageStreamsByFilter(new Whitelist(topic), 1)
            : consumer.createMessageStreams(Collections.singletonMap(topic, Integer.valueOf(1))).get(topic);
        for (KafkaStream<byte[], byte[]> stream : streams) {
            Thread reader = new Thread(() -> print(name, stream));
            reader.setDaemon(true);
            reader.start();
        }
    }

    private static void print(String name, KafkaStream<byte[], byte[]> stream) {
        ConsumerIterator<byte[], byte[]> records = stream.iterator();
        while (records.hasNext()) {
            MessageAndMetadata<byte[], byte[]> record = records.next();
            String where = record.topic() + "\t" + record.partition() + "\t" + record.offset();
            say("record\t" + name + "\t" + where + "\t" + text(record.key()) + "\t" + text(record.message()));
        }
    }

    private static String text(byte[] bytes) {
        return bytes == null ? "" : new String(bytes, StandardCharsets.UTF_8);
    }

    private static void send(String bootstrap, String topic, String acks, String codec, int count) {
        Properties settings = new Properties();
        settings.put("metadata.broker.list", bootstrap);
        settings.put("serializer.class", "kafka.serializer.StringEncoder");
        settings.put("request.required.acks", acks);
        settings.put("compression.codec", codec);
        settings.put("producer.type", "sync");
        Producer<String, String> producer = new Producer<>(new ProducerConfig(settings));
        List<KeyedMessage<String, String>> records = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            records.add(new KeyedMessage<>(topic, codec + "-" + number, acks + " " + codec + " " + number));
        }
        producer.send(records);
        producer.close();
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
