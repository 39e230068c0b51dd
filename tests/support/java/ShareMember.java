// A member of a share group: KafkaShareConsumer of Apache Kafka 4.4.
// ShareMember BOOTSTRAP GROUP TOPIC implicit|explicit|renew COUNT: prints a line for each delivery: offset, delivery count, answer.

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

public class ShareMember {
    private final KafkaShareConsumer<String, String> consumer;
    private final int count;
    private int done = 0;

    private ShareMember(KafkaShareConsumer<String, String> consumer, int count) {
        this.consumer = consumer;
        this.count = count;
    }

    public static void main(String[] arguments) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("group.id", arguments[1]);
        properties.put("share.acknowledgement.mode", arguments[3].equals("implicit") ? "implicit" : "explicit");
        long end = System.currentTimeMillis() + 60_000;
        try (KafkaShareConsumer<String, String> consumer =
                new KafkaShareConsumer<>(properties, new StringDeserializer(), new StringDeserializer())) {
            ShareMember member = new ShareMember(consumer, Integer.parseInt(arguments[4]));
            consumer.subscribe(List.of(arguments[2]));
            while (member.done < member.count && System.currentTimeMillis() < end) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(500))) {
                    member.take(record, arguments[3]);
                }
                member.commit();
            }
        }
    }

    private void take(ConsumerRecord<String, String> record, String mode) {
        AcknowledgeType type = AcknowledgeType.ACCEPT;
        if (mode.equals("explicit")) {
            if (record.offset() % 3 == 1 && record.deliveryCount().equals(Optional.of((short) 1))) {
                type = AcknowledgeType.RELEASE;
            } else if (record.offset() % 3 == 2) {
                type = AcknowledgeType.REJECT;
            }
        } else if (mode.equals("renew")) {
            for (int times = 0; times < 6; times++) {
                consumer.acknowledge(record, AcknowledgeType.RENEW);
                commit();
                sleep(500);
                consumer.poll(Duration.ofMillis(100));
            }
        }
        if (!mode.equals("implicit")) {
            consumer.acknowledge(record, type);
        }
        System.out.println(record.offset() + " " + record.deliveryCount().get() + " " + type.name());
        done += type == AcknowledgeType.RELEASE ? 0 : 1;
    }

    private void commit() {
        for (Map.Entry<TopicIdPartition, Optional<KafkaException>> each : consumer.commitSync().entrySet()) {
            each.getValue().ifPresent(error -> System.out.println("error " + error));
        }
    }

    private static void sleep(long milliseconds) {
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException end) {
            throw new IllegalStateException(end);
        }
    }
}
