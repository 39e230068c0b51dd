import java.util.Arrays;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * Writes records to partition 0 of a topic with every codec of before 2017 and every acks, then runs the console consumer of its release.
 *
 * Arguments: bootstrap servers, topic, the number of records for each codec and acks, the consumer's class, and its arguments. The key of a
 * record is its codec, the value its acks and its number. The source compiles with the clients from 0.8.2 on.
 */
public final class OldClient {
    public static void main(String[] words) throws Exception {
        for (String codec : new String[] {"none", "gzip", "snappy", "lz4"}) {
            for (String acks : new String[] {"0", "1", "-1"}) {
                produce(words[0], words[1], codec, acks, Integer.parseInt(words[2]));
            }
        }
        Class<?> consumer = Class.forName(words[3]);
        consumer.getMethod("main", String[].class).invoke(null, (Object) Arrays.copyOfRange(words, 4, words.length));
        System.out.flush();
        System.exit(0);
    }

    private static void produce(String bootstrap, String topic, String codec, String acks, int count) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("compression.type", codec);
        settings.put("acks", acks);
        settings.put("linger.ms", "1000");
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        KafkaProducer<String, String> producer = new KafkaProducer<>(settings);
        Future<?>[] sent = new Future<?>[count];
        for (int number = 0; number < count; number++) {
            sent[number] = producer.send(new ProducerRecord<>(topic, 0, codec, acks + " " + number));
        }
        producer.close();
        for (Future<?> each : sent) {
            each.get();
        }
    }
}
