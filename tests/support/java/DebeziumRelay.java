import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Debezium's embedded engine, which writes the changes of the table `items` of a PostgreSQL into the topic `shop.public.items`.
 *
 * Its offsets are in the topic `debezium-offsets`. An offset is stored after the broker has acknowledged the change, so a change is written
 * at least once. Arguments: the brokers, and the port of PostgreSQL. It runs until it is killed.
 */
public final class DebeziumRelay {
    private DebeziumRelay() { }

    public static void main(String[] arguments) throws Exception {
        Properties producing = new Properties();
        producing.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        producing.put(ProducerConfig.KEY_SERIALIZER_CLASS_CONFIG, StringSerializer.class.getName());
        producing.put(ProducerConfig.VALUE_SERIALIZER_CLASS_CONFIG, StringSerializer.class.getName());
        KafkaProducer<String, String> producer = new KafkaProducer<>(producing);
        DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class)
            .using(config(arguments[0], arguments[1]))
            .notifying((changes, committer) -> {
                List<Future<RecordMetadata>> sent = new ArrayList<>();
                for (ChangeEvent<String, String> change : changes) {
                    sent.add(producer.send(new ProducerRecord<>(change.destination(), change.key(), change.value())));
                }
                for (int number = 0; number < sent.size(); number++) {
                    try {
                        sent.get(number).get();
                    } catch (java.util.concurrent.ExecutionException failure) {
                        throw new IllegalStateException(failure);
                    }
                    committer.markProcessed(changes.get(number));
                }
                committer.markBatchFinished();
            })
            .using((success, message, error) -> System.err.println("the engine has ended: " + message + " " + error))
            .build();
        engine.run();
    }

    private static Properties config(String brokers, String port) {
        Properties config = new Properties();
        config.put("name", "relay");
        config.put("connector.class", "io.debezium.connector.postgresql.PostgresConnector");
        config.put("bootstrap.servers", brokers);
        config.put("offset.storage", "org.apache.kafka.connect.storage.KafkaOffsetBackingStore");
        config.put("offset.storage.topic", "debezium-offsets");
        config.put("offset.storage.partitions", "1");
        config.put("offset.storage.replication.factor", "1");
        config.put("offset.flush.interval.ms", "200");
        config.put("database.hostname", "127.0.0.1");
        config.put("database.port", port);
        config.put("database.user", "postgres");
        config.put("database.password", "postgres");
        config.put("database.dbname", "postgres");
        config.put("plugin.name", "pgoutput");
        config.put("slot.retry.delay.ms", "500");
        config.put("topic.prefix", "shop");
        config.put("table.include.list", "public.items");
        config.put("publication.autocreate.mode", "filtered");
        config.put("key.converter.schemas.enable", "false");
        config.put("value.converter.schemas.enable", "false");
        config.put("poll.interval.ms", "50");
        return config;
    }
}
