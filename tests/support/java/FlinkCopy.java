import java.util.Map;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * A job of Flink that copies the values of the topic `input` into the topic `output`, exactly once, with one task.
 *
 * Arguments: the brokers, and the folder of the checkpoints. A checkpoint each half second commits the transactions of the sink. After a
 * failure the job begins again at its last checkpoint. It runs until it is killed.
 */
public final class FlinkCopy {
    private FlinkCopy() { }

    public static void main(String[] arguments) throws Exception {
        Configuration settings = Configuration.fromMap(Map.of(
            "parallelism.default", "1",
            "execution.checkpointing.interval", "500 ms",
            "execution.checkpointing.dir", "file://" + arguments[1],
            "restart-strategy.type", "fixed-delay",
            "restart-strategy.fixed-delay.attempts", "100",
            "restart-strategy.fixed-delay.delay", "500 ms",
            "rest.address", "127.0.0.1",
            "rest.bind-address", "127.0.0.1"));
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment(settings);
        KafkaSource<String> source = KafkaSource.<String>builder()
            .setBootstrapServers(arguments[0])
            .setTopics("input")
            .setGroupId("flink")
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setValueOnlyDeserializer(new SimpleStringSchema())
            .build();
        KafkaSink<String> sink = KafkaSink.<String>builder()
            .setBootstrapServers(arguments[0])
            .setRecordSerializer(KafkaRecordSerializationSchema.<String>builder()
                .setTopic("output")
                .setValueSerializationSchema(new SimpleStringSchema())
                .build())
            .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .setTransactionalIdPrefix("flink")
            .setProperty("transaction.timeout.ms", "60000")
            .build();
        environment.fromSource(source, WatermarkStrategy.noWatermarks(), "input").sinkTo(sink);
        environment.execute("copy");
    }
}
