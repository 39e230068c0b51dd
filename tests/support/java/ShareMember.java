// A member of a share group: KafkaShareConsumer of Apache Kafka 4.4.
// ShareMember BOOTSTRAP GROUP TOPIC implicit|explicit|renew|silent|late|release COUNT: prints a line for each delivery: offset, delivery
// count, answer; and one for each acknowledgement that is refused. Locks have ended when a late member accepts.

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
        long end = System.currentTimeMillis() + 100_000;
        try (KafkaShareConsumer<String, String> consumer =
                new KafkaShareConsumer<>(properties, new StringDeserializer(), new StringDeserializer())) {
            ShareMember member = new ShareMember(consumer, Integer.parseInt(arguments[4]));
            consumer.subscribe(List.of(arguments[2]));
            while (member.done < member.count && System.currentTimeMillis() < end) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(500))) {
                    member.take(record, arguments[3]);
                }
                if (!arguments[3].equals("silent")) {
                    member.commit();
                }
            }
        }
    }

    private void take(ConsumerRecord<String, String> record, String mode) {
        boolean isFirst = record.deliveryCount().equals(Optional.of((short) 1));
        if (mode.equals("renew")) {
            for (int times = 0; times < 8; times++) {
                consumer.acknowledge(record, AcknowledgeType.RENEW);
                commit();
                sleep(1_000);
                consumer.poll(Duration.ofMillis(100));
            }
        } else if (mode.equals("late") && isFirst) {
            sleep(12_000);
        }
        AcknowledgeType type = answer(record.offset(), mode, isFirst);
        if (type != null && !mode.equals("implicit")) {
            consumer.acknowledge(record, type);
        }
        System.out.println(record.offset() + " " + record.deliveryCount().get() + " " + (type == null ? "NONE" : type.name()));
        boolean comesAgain = type == AcknowledgeType.RELEASE && !mode.equals("release") || mode.equals("late") && isFirst;
        done += comesAgain ? 0 : 1;
    }

    private static AcknowledgeType answer(long offset, String mode, boolean isFirst) {
        if (mode.equals("silent")) {
            return null;
        }
        if (mode.equals("release") || mode.equals("explicit") && offset % 3 == 1 && isFirst) {
            return AcknowledgeType.RELEASE;
        }
        return mode.equals("explicit") && offset % 3 == 2 ? AcknowledgeType.REJECT : AcknowledgeType.ACCEPT;
    }

    private void commit() {
        for (Map.Entry<TopicIdPartition, Optional<KafkaException>> each : consumer.commitSync().entrySet()) {
            each.getValue().ifPresent(error -> System.out.println("error " + error.getClass().getSimpleName()));
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
