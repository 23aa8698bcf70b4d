import java.net.ServerSocket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.KafkaSourceBuilder;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * A topic copied to another on Flink, value by value, exactly once, two subtasks.
 *
 * <p>Arguments: {@code SERVERS/TOPIC OUT CHECKPOINTS [INTERVAL STOP STATISTICS]}. With INTERVAL, such as "100 ms", it goes on
 * until a file STOP is there, and STATISTICS gets what Flink tells of its checkpoints, a line after 15 s and one at the end;
 * without, it ends where the topic ended when it began, and a checkpoint is every 10 s.
 */
public final class KafkaCopy {
  private KafkaCopy() {}

  public static void main(String[] args) throws Exception {
    boolean goesOn = args.length > 3;
    int port = freePort();
    Configuration settings = new Configuration();
    settings.setString("execution.checkpointing.interval", goesOn ? args[3] : "10 s");
    settings.setString("execution.checkpointing.dir", Paths.get(args[2]).toUri().toString());
    settings.setString("taskmanager.numberOfTaskSlots", "2");
    settings.setString("pipeline.object-reuse", "true");
    settings.setString("rest.port", String.valueOf(port));
    if (goesOn) {
      settings.setString("restart-strategy.type", "none");
    }
    StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment(settings);
    env.setParallelism(2);
    String[] serversAndTopic = args[0].split("/", 2);
    KafkaSourceBuilder<String> source =
        KafkaSource.<String>builder()
            .setBootstrapServers(serversAndTopic[0])
            .setTopics(serversAndTopic[1])
            .setGroupId("flink-baseline-" + System.nanoTime())
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setValueOnlyDeserializer(new SimpleStringSchema());
    if (!goesOn) {
      source.setBounded(OffsetsInitializer.latest());
    }
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
    env.fromSource(source.build(), WatermarkStrategy.noWatermarks(), "source").sinkTo(sink);
    if (goesOn) {
      runUntil(Paths.get(args[4]), env.executeAsync("kafka-copy"), port, Paths.get(args[5]));
    } else {
      env.execute("kafka-copy");
    }
    System.exit(0);
  }

  private static void runUntil(Path stop, JobClient job, int port, Path statistics) throws Exception {
    CompletableFuture<?> ended = job.getJobExecutionResult();
    URI checkpoints = URI.create("http://localhost:" + port + "/jobs/" + job.getJobID() + "/checkpoints");
    List<String> answers = new ArrayList<>();
    long warm = System.nanoTime() + 15_000_000_000L;
    while (!Files.exists(stop)) {
      if (ended.isDone()) {
        ended.get();
        throw new IllegalStateException("the job ended by itself");
      }
      if (answers.isEmpty() && System.nanoTime() > warm) {
        String answer = answer(checkpoints);
        if (answer.contains("COMPLETED")) {
          answers.add(answer);
        }
      }
      Thread.sleep(100);
    }
    answers.add(answer(checkpoints));
    Files.write(statistics, answers);
    job.cancel().get();
  }

  private static String answer(URI place) throws Exception {
    HttpRequest request = HttpRequest.newBuilder(place).build();
    return HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString()).body();
  }

  private static int freePort() throws java.io.IOException {
    try (ServerSocket socket = new ServerSocket(0)) {
      return socket.getLocalPort();
    }
  }
}
