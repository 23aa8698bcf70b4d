import java.nio.file.Paths;
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
 * A topic copied to another on Flink, value by value, exactly once, bounded, two subtasks, a checkpoint every 10 s.
 *
 * <p>Arguments: {@code SERVERS/TOPIC OUT CHECKPOINTS}.
 */
public final class KafkaCopy {
  private KafkaCopy() {}

  public static void main(String[] args) throws Exception {
    Configuration settings = new Configuration();
    settings.setString("execution.checkpointing.interval", "10 s");
    settings.setString("execution.checkpointing.dir", Paths.get(args[2]).toUri().toString());
    settings.setString("taskmanager.numberOfTaskSlots", "2");
    settings.setString("rest.port", "0");
    StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment(settings);
    env.setParallelism(2);
    String[] serversAndTopic = args[0].split("/", 2);
    KafkaSource<String> source =
        KafkaSource.<String>builder()
            .setBootstrapServers(serversAndTopic[0])
            .setTopics(serversAndTopic[1])
            .setGroupId("flink-baseline-" + System.nanoTime())
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setBounded(OffsetsInitializer.latest())
            .setValueOnlyDeserializer(new SimpleStringSchema())
            .build();
    KafkaSink<String> sink =
        KafkaSink.<String>builder()
            .setBootstrapServers(serversAndTopic[0])
            .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .setTransactionalIdPrefix("flink-baseline-" + System.nanoTime())
            // Its default of an hour is more than a broker allows.
            .setProperty("transaction.timeout.ms", "600000")
            .setRecordSerializer(
                KafkaRecordSerializationSchema.builder()
                    .setTopic(args[1])
                    .setValueSerializationSchema(new SimpleStringSchema())
                    .build())
            .build();
    env.fromSource(source, WatermarkStrategy.noWatermarks(), "source").sinkTo(sink);
    env.execute("kafka-copy");
    System.exit(0);
  }
}
