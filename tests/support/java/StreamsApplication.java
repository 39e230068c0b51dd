import java.time.Duration;
import java.util.Arrays;
import java.util.Locale;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;

/**
 * A Kafka Streams application for 3.9 and 4, in exactly_once_v2, whose output is known from its input alone, whatever the order of its work.
 *
 * It counts the words of the lines in `lines` and writes every new count into `counts`. It joins `left` and `right` by key within a day,
 * and writes every pair into `joined`. Arguments: the brokers, the application id, the state directory, the replication factor of its own
 * topics, `in_memory` or `rocksDB` as the kind of its stores, and the number of standby replicas. It runs until it is killed; SIGTERM
 * closes it.
 */
public final class StreamsApplication {
    private StreamsApplication() { }

    public static void main(String[] arguments) {
        Properties config = config(arguments);
        KafkaStreams streams = new KafkaStreams(topology(config), config);
        streams.setUncaughtExceptionHandler(failure -> StreamThreadExceptionResponse.REPLACE_THREAD);
        streams.setStateListener((state, before) -> System.out.println("state " + state));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(20))));
        streams.start();
    }

    private static Topology topology(Properties config) {
        StreamsBuilder builder = new StreamsBuilder(new TopologyConfig(new StreamsConfig(config))); // without it, the kind of stores is not read
        KStream<String, String> lines = builder.stream("lines");
        lines.flatMapValues(line -> Arrays.asList(line.toLowerCase(Locale.ROOT).split(" ")))
            .groupBy((key, word) -> word)
            .count()
            .toStream()
            .mapValues(String::valueOf)
            .to("counts");
        KStream<String, String> left = builder.stream("left");
        KStream<String, String> right = builder.stream("right");
        left.join(right, (one, other) -> one + "+" + other, JoinWindows.ofTimeDifferenceWithNoGrace(Duration.ofDays(1))).to("joined");
        return builder.build();
    }

    private static Properties config(String[] arguments) {
        Properties config = new Properties();
        config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[1]);
        config.put(StreamsConfig.STATE_DIR_CONFIG, arguments[2]);
        config.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, arguments[3]);
        config.put(StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG, arguments[4].equals("in_memory")
            ? BuiltInDslStoreSuppliers.InMemoryDslStoreSuppliers.class : BuiltInDslStoreSuppliers.RocksDBDslStoreSuppliers.class);
        config.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        config.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        config.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        config.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        config.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 1);
        config.put(StreamsConfig.NUM_STANDBY_REPLICAS_CONFIG, Integer.parseInt(arguments[5]));
        config.put(StreamsConfig.REPARTITION_PURGE_INTERVAL_MS_CONFIG, 1_000);
        config.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
        config.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        config.put(StreamsConfig.consumerPrefix("session.timeout.ms"), 3_000);
        config.put(StreamsConfig.consumerPrefix("heartbeat.interval.ms"), 500);
        config.put(StreamsConfig.producerPrefix("transaction.timeout.ms"), 5_000);
        return config;
    }
}
