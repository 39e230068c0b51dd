import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;

/**
 * Reads with Java's consumer, and `group.protocol=consumer` unless another is given, until it has so many records, commits, and leaves: `BOOTSTRAP GROUP names|pattern
 * TOPICS COUNT [KEY=VALUE ...]`. It prints "assigned TOPIC-PARTITION ..." after each change, and "topic value" for each record.
 */
public class ConsumerOfNewProtocol {
    public static void main(String[] args) {
        Map<String, Object> properties = new TreeMap<>();
        properties.put("bootstrap.servers", args[0]);
        properties.put("group.id", args[1]);
        properties.put("group.protocol", "consumer");
        properties.put("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", "false");
        properties.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        properties.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        for (int i = 5; i < args.length; i++) properties.put(args[i].split("=", 2)[0], args[i].split("=", 2)[1]);
        int wanted = Integer.parseInt(args[4]);
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(properties)) {
            ConsumerRebalanceListener listener = new ConsumerRebalanceListener() {
                public void onPartitionsAssigned(Collection<TopicPartition> added) {
                    List<String> names = new ArrayList<>();
                    consumer.assignment().stream().map(TopicPartition::toString).sorted().forEach(names::add);
                    System.out.println("assigned " + String.join(" ", names));
                }

                public void onPartitionsRevoked(Collection<TopicPartition> revoked) {
                }
            };
            if (args[2].equals("pattern")) consumer.subscribe(new SubscriptionPattern(args[3]), listener);
            else consumer.subscribe(List.of(args[3].split(",")), listener);
            int found = 0;
            while (found < wanted) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    System.out.println(record.topic() + " " + record.value());
                    found++;
                }
            }
            consumer.commitSync();
        } catch (Exception error) {
            System.out.println("failed " + error);
        }
    }
}
