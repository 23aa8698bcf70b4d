import java.io.IOException;
import java.nio.file.Paths;
import java.time.Duration;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.serialization.AbstractDeserializationSchema;
import org.apache.flink.api.common.serialization.SimpleStringEncoder;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.file.sink.FileSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.core.fs.Path;
import org.apache.flink.formats.json.JsonDeserializationSchema;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.core.JsonFactory;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.core.JsonParser;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.core.StreamReadFeature;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.KeyedStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.filesystem.bucketassigners.BasePathBucketAssigner;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.EventTimeSessionWindows;
import org.apache.flink.streaming.api.windowing.assigners.SlidingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;

/**
 * Work by key on Flink, over lines of JSON in a topic, bounded: two subtasks, a checkpoint every 10 s, state on the heap,
 * results as lines of JSON in files, exactly once.
 *
 * <p>Arguments: {@code WORK SERVERS/TOPIC OUT CHECKPOINTS}; WORK is window, sliding, sessions or process, as in
 * keyed_kafka.py; with "tokens-" before it, lines are read by a parser written by hand.
 */
public final class KeyedKafka {
  private static final TypeInformation<Tuple3<Long, String, Double>> ROW = Types.TUPLE(Types.LONG, Types.STRING, Types.DOUBLE);
  private static final TypeInformation<Totals> TOTALS = Types.POJO(Totals.class);

  private KeyedKafka() {}

  /** A line as its time in ms, key and value, by Jackson's mapping to a class, as Flink's own JsonDeserializationSchema reads it. */
  public static final class MappedRow extends AbstractDeserializationSchema<Tuple3<Long, String, Double>> {
    private final JsonDeserializationSchema<Event> json = new JsonDeserializationSchema<>(Event.class);

    MappedRow() {
      super(ROW);
    }

    @Override
    public void open(InitializationContext context) {
      json.open(context);
    }

    @Override
    public Tuple3<Long, String, Double> deserialize(byte[] line) throws IOException {
      Event event = json.deserialize(line);
      return new Tuple3<>((long) (event.timestamp * 1e6) / 1000, event.key, event.value);
    }
  }

  /** What a line holds. */
  public static final class Event {
    public double timestamp;
    public String key;
    public double value;
  }

  /** A line as its time in ms, key and value; read token by token by hand, faster than what Flink's documentation shows. */
  public static final class TokenRow extends AbstractDeserializationSchema<Tuple3<Long, String, Double>> {
    private transient JsonFactory json;

    TokenRow() {
      super(ROW);
    }

    @Override
    public void open(InitializationContext context) {
      json = JsonFactory.builder().enable(StreamReadFeature.USE_FAST_DOUBLE_PARSER).build();
    }

    @Override
    public Tuple3<Long, String, Double> deserialize(byte[] line) throws IOException {
      Tuple3<Long, String, Double> row = new Tuple3<>();
      try (JsonParser parser = json.createParser(line)) {
        parser.nextToken();
        for (String name = parser.nextFieldName(); name != null; name = parser.nextFieldName()) {
          parser.nextToken();
          switch (name) {
            case "timestamp" -> row.f0 = (long) (parser.getDoubleValue() * 1e6) / 1000;
            case "key" -> row.f1 = parser.getText();
            case "value" -> row.f2 = parser.getDoubleValue();
            default -> parser.skipChildren();
          }
        }
      }
      return row;
    }
  }

  /** Count, sum, least and greatest of a window; primitive fields, since a tuple's are boxed for each row. */
  public static final class Totals {
    public long rows;
    public double total;
    public double low = Double.POSITIVE_INFINITY;
    public double high = Double.NEGATIVE_INFINITY;

    void add(long moreRows, double more, double otherLow, double otherHigh) {
      rows += moreRows;
      total += more;
      low = Math.min(low, otherLow);
      high = Math.max(high, otherHigh);
    }
  }

  /** Adds rows to the totals, which are changed in place. */
  public static final class Aggregates implements AggregateFunction<Tuple3<Long, String, Double>, Totals, Totals> {
    @Override
    public Totals createAccumulator() {
      return new Totals();
    }

    @Override
    public Totals add(Tuple3<Long, String, Double> row, Totals all) {
      double value = row.f2;
      all.add(1, value, value, value);
      return all;
    }

    @Override
    public Totals getResult(Totals all) {
      return all;
    }

    @Override
    public Totals merge(Totals a, Totals b) {
      a.add(b.rows, b.total, b.low, b.high);
      return a;
    }
  }

  /** A line for each window: its count. */
  public static final class CountLine extends ProcessWindowFunction<Long, String, String, TimeWindow> {
    @Override
    public void process(String key, Context context, Iterable<Long> counts, Collector<String> out) {
      out.collect(begun(key, context.window(), counts.iterator().next()).append('}').toString());
    }
  }

  /** A line for each window: its totals. */
  public static final class TotalsLine extends ProcessWindowFunction<Totals, String, String, TimeWindow> {
    @Override
    public void process(String key, Context context, Iterable<Totals> totals, Collector<String> out) {
      Totals all = totals.iterator().next();
      StringBuilder line = begun(key, context.window(), all.rows).append(",\"total\":").append(all.total);
      line.append(",\"low\":").append(all.low).append(",\"high\":").append(all.high);
      out.collect(line.append('}').toString());
    }
  }

  private static StringBuilder begun(String key, TimeWindow window, long rows) {
    StringBuilder line = new StringBuilder(160).append("{\"key\":\"").append(key);
    line.append("\",\"window_start\":").append(window.getStart()).append(",\"window_end\":").append(window.getEnd());
    return line.append(",\"n\":").append(rows);
  }

  private static DataStream<String> windows(KeyedStream<Tuple3<Long, String, Double>, String> keyed, String work) {
    Duration span = Duration.ofSeconds(10);
    return (work.equals("window")
            ? keyed.window(TumblingEventTimeWindows.of(span))
            : keyed.window(SlidingEventTimeWindows.of(Duration.ofSeconds(60), span)))
        .aggregate(new Aggregates(), new TotalsLine(), TOTALS, TOTALS, Types.STRING);
  }

  public static void main(String[] args) throws Exception {
    boolean byHand = args[0].startsWith("tokens-");
    String work = byHand ? args[0].substring("tokens-".length()) : args[0];
    Configuration settings = new Configuration();
    settings.setString("execution.checkpointing.interval", "10 s");
    settings.setString("execution.checkpointing.dir", Paths.get(args[3]).toUri().toString());
    settings.setString("taskmanager.numberOfTaskSlots", "2");
    settings.setString("pipeline.object-reuse", "true");
    // With checkpoints a job that fails is started again for ever, and looks as if it hung.
    settings.setString("restart-strategy.type", "none");
    settings.setString("rest.port", "0");
    StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment(settings);
    env.setParallelism(2);
    String[] serversAndTopic = args[1].split("/", 2);
    KafkaSource<Tuple3<Long, String, Double>> source =
        KafkaSource.<Tuple3<Long, String, Double>>builder()
            .setBootstrapServers(serversAndTopic[0])
            .setTopics(serversAndTopic[1])
            .setGroupId("flink-baseline-" + System.nanoTime())
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setBounded(OffsetsInitializer.latest())
            .setValueOnlyDeserializer(byHand ? new TokenRow() : new MappedRow())
            .build();
    WatermarkStrategy<Tuple3<Long, String, Double>> byTime =
        WatermarkStrategy.<Tuple3<Long, String, Double>>forBoundedOutOfOrderness(Duration.ofSeconds(5))
            .withTimestampAssigner((row, before) -> row.f0);
    KeyedStream<Tuple3<Long, String, Double>, String> keyed =
        env.fromSource(source, byTime, "rows").keyBy(row -> row.f1);
    DataStream<String> lines =
        switch (work) {
          case "process" -> keyed.process(new KeyedWork.CountUntilTimer<>(), Types.STRING);
          case "sessions" ->
              keyed
                  .window(EventTimeSessionWindows.withGap(Duration.ofMillis(500)))
                  .aggregate(new KeyedWork.Count<>(), new CountLine(), Types.LONG, Types.LONG, Types.STRING);
          default -> windows(keyed, work);
        };
    lines.sinkTo(
        FileSink.forRowFormat(new Path(args[2]), new SimpleStringEncoder<String>("UTF-8"))
            .withBucketAssigner(new BasePathBucketAssigner<>())
            .build());
    env.execute("keyed-kafka");
    System.exit(0);
  }
}
