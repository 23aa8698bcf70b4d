import java.nio.file.Files;
import java.nio.file.Paths;
import java.time.Instant;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringEncoder;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.api.connector.source.Source;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.file.sink.FileSink;
import org.apache.flink.connector.file.src.FileSource;
import org.apache.flink.connector.file.src.reader.TextLineInputFormat;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.core.fs.Path;
import org.apache.flink.core.io.SimpleVersionedSerializer;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.filesystem.BucketAssigner;
import org.apache.flink.streaming.api.functions.sink.filesystem.bucketassigners.SimpleVersionedStringSerializer;
import org.apache.flink.streaming.api.functions.sink.filesystem.rollingpolicies.DefaultRollingPolicy;

/**
 * The reference job on Flink: lines of JSON from files or from Kafka to text files bucketed by event time, exactly once,
 * bounded, two subtasks, a checkpoint every 10 s.
 *
 * <p>Arguments: {@code files INPUT OUT CHECKPOINTS} or {@code kafka SERVERS/TOPIC OUT CHECKPOINTS}.
 */
public final class EventLog {
  private EventLog() {}

  /** The UTC day of the field {@code timestamp}, seconds since 1970. */
  public static final class EventTimeBucket implements BucketAssigner<String, String> {
    private transient ObjectMapper mapper;
    private transient DateTimeFormatter day;

    @Override
    public String getBucketId(String line, Context context) {
      if (mapper == null) {
        mapper = new ObjectMapper();
        day = DateTimeFormatter.ofPattern("yyyyMMdd").withZone(ZoneOffset.UTC);
      }
      try {
        double seconds = mapper.readTree(line).path("timestamp").doubleValue();
        return "dt=" + day.format(Instant.ofEpochMilli((long) (seconds * 1000)));
      } catch (java.io.IOException e) {
        return "dt=00000000";
      }
    }

    @Override
    public SimpleVersionedSerializer<String> getSerializer() {
      return SimpleVersionedStringSerializer.INSTANCE;
    }
  }

  private static Source<String, ?, ?> source(String kind, String from) {
    if (kind.equals("files")) {
      return FileSource.forRecordStreamFormat(new TextLineInputFormat(), new Path(from)).build();
    }
    String[] serversAndTopic = from.split("/", 2);
    return KafkaSource.<String>builder()
        .setBootstrapServers(serversAndTopic[0])
        .setTopics(serversAndTopic[1])
        .setGroupId("flink-baseline-" + System.nanoTime())
        .setStartingOffsets(OffsetsInitializer.earliest())
        .setBounded(OffsetsInitializer.latest())
        .setValueOnlyDeserializer(new SimpleStringSchema())
        .build();
  }

  public static void main(String[] args) throws Exception {
    Configuration settings = new Configuration();
    settings.setString("execution.checkpointing.interval", "10 s");
    settings.setString("execution.checkpointing.dir", Paths.get(args[3]).toUri().toString());
    settings.setString("taskmanager.numberOfTaskSlots", "2");
    settings.setString("pipeline.object-reuse", "true");
    settings.setString("rest.port", "0");
    StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment(settings);
    env.setParallelism(2);
    env.fromSource(source(args[0], args[1]), WatermarkStrategy.noWatermarks(), "source")
        .sinkTo(
            FileSink.forRowFormat(new Path(args[2]), new SimpleStringEncoder<String>("UTF-8"))
                .withBucketAssigner(new EventTimeBucket())
                .withRollingPolicy(DefaultRollingPolicy.builder().build())
                .build());
    long begin = System.nanoTime();
    double cpu = cpuSeconds();
    env.execute("event-log");
    System.out.printf("execute: wall %.2f s, cpu %.2f s%n", (System.nanoTime() - begin) / 1e9, cpuSeconds() - cpu);
    System.exit(0);
  }

  private static double cpuSeconds() throws java.io.IOException {
    String stat = Files.readString(Paths.get("/proc/self/stat"));
    String[] fields = stat.substring(stat.lastIndexOf(')') + 2).split(" ");
    return (Long.parseLong(fields[11]) + Long.parseLong(fields[12])) / 100.0;
  }
}
