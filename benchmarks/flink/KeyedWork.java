import java.nio.file.Paths;
import java.time.Duration;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.serialization.SimpleStringEncoder;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.datagen.source.DataGeneratorSource;
import org.apache.flink.connector.datagen.source.GeneratorFunction;
import org.apache.flink.connector.file.sink.FileSink;
import org.apache.flink.core.fs.Path;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.KeyedStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.EventTimeSessionWindows;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;

/**
 * Work by key on Flink: two subtasks, a checkpoint every 10 s, state on the heap, results as lines of JSON in files.
 *
 * <p>Arguments: {@code WORK ROWS KEYS OUT CHECKPOINTS}; WORK is window, process or sessions. The rows are those of keyed.py.
 */
public final class KeyedWork {
  private static final long BASE_MS = 1545184224000L;
  private static final long SPAN_MS = 10_000L;
  private static final TypeInformation<Tuple3<Long, String, Long>> ROW = Types.TUPLE(Types.LONG, Types.STRING, Types.LONG);

  private KeyedWork() {}

  /** Row i: its time, key and number. */
  public static final class Rows implements GeneratorFunction<Long, Tuple3<Long, String, Long>> {
    private final long half;
    private final int keys;
    private transient String[] names;

    Rows(long rows, int keys) {
      this.half = rows / 2;
      this.keys = keys;
    }

    @Override
    public Tuple3<Long, String, Long> map(Long i) {
      if (names == null) {
        names = new String[keys];
        for (int k = 0; k < keys; k++) {
          names[k] = "key-" + k;
        }
      }
      long j = i % half;
      int key = (int) (((i * 0x9E3779B97F4A7C15L) >>> 33) % keys);
      return new Tuple3<>(BASE_MS + j / 50 - j * 7919 % 4000, names[key], i % 1000);
    }
  }

  /** How many rows there were. */
  public static final class Count<T> implements AggregateFunction<T, Long, Long> {
    @Override
    public Long createAccumulator() {
      return 0L;
    }

    @Override
    public Long add(T row, Long count) {
      return count + 1;
    }

    @Override
    public Long getResult(Long count) {
      return count;
    }

    @Override
    public Long merge(Long a, Long b) {
      return a + b;
    }
  }

  /** A line for each window. */
  public static final class Line extends ProcessWindowFunction<Long, String, String, TimeWindow> {
    @Override
    public void process(String key, Context context, Iterable<Long> counts, Collector<String> out) {
      out.collect(line(key, context.window().getStart(), counts.iterator().next()));
    }
  }

  /** Counts the rows of a key until a timer, ten seconds on, gives the count; a row's first field is its time. */
  public static final class CountUntilTimer<T> extends KeyedProcessFunction<String, Tuple3<Long, String, T>, String> {
    private transient ValueState<Long> rows;

    @Override
    public void open(OpenContext context) {
      rows = getRuntimeContext().getState(new ValueStateDescriptor<>("n", Types.LONG));
    }

    @Override
    public void processElement(Tuple3<Long, String, T> row, Context context, Collector<String> out) throws Exception {
      Long before = rows.value();
      if (before == null) {
        before = 0L;
        context.timerService().registerEventTimeTimer(row.f0 - row.f0 % SPAN_MS + SPAN_MS - 1);
      }
      rows.update(before + 1);
    }

    @Override
    public void onTimer(long at, OnTimerContext context, Collector<String> out) throws Exception {
      out.collect(line(context.getCurrentKey(), at, rows.value()));
      rows.clear();
    }
  }

  private static String line(String key, long at, long rows) {
    return "{\"key\":\"" + key + "\",\"at\":" + at + ",\"n\":" + rows + "}";
  }

  public static void main(String[] args) throws Exception {
    long rows = Long.parseLong(args[1]);
    int keys = Integer.parseInt(args[2]);
    Configuration settings = new Configuration();
    settings.setString("execution.checkpointing.interval", "10 s");
    settings.setString("execution.checkpointing.dir", Paths.get(args[4]).toUri().toString());
    settings.setString("taskmanager.numberOfTaskSlots", "2");
    settings.setString("pipeline.object-reuse", "true");
    settings.setString("rest.port", "0");
    StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment(settings);
    env.setParallelism(2);
    WatermarkStrategy<Tuple3<Long, String, Long>> byTime =
        WatermarkStrategy.<Tuple3<Long, String, Long>>forBoundedOutOfOrderness(Duration.ofSeconds(5))
            .withTimestampAssigner((row, before) -> row.f0);
    KeyedStream<Tuple3<Long, String, Long>, String> keyed =
        env.fromSource(new DataGeneratorSource<>(new Rows(rows, keys), rows, ROW), byTime, "rows").keyBy(row -> row.f1);
    DataStream<String> lines =
        switch (args[0]) {
          case "window" -> keyed.window(TumblingEventTimeWindows.of(Duration.ofMillis(SPAN_MS))).aggregate(new Count<>(), new Line());
          case "sessions" ->
              keyed.window(EventTimeSessionWindows.withGap(Duration.ofMillis(50L * keys / 1000))).aggregate(new Count<>(), new Line());
          default -> keyed.process(new CountUntilTimer<>());
        };
    lines.sinkTo(FileSink.forRowFormat(new Path(args[3]), new SimpleStringEncoder<String>("UTF-8")).build());
    env.execute("keyed-work");
  }
}
