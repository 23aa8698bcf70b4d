import java.nio.file.Files;
import java.nio.file.Paths;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;

/**
 * A script of Flink SQL: two subtasks, a checkpoint every 10 s, state on the heap, objects used again, mini-batches as Nexmark sets them.
 *
 * <p>Arguments: {@code SCRIPT CHECKPOINTS PARALLELISM}. Lines that begin with -- are left out; a statement ends with ; at the end of a line.
 */
public final class SqlScript {
  private SqlScript() {}

  public static void main(String[] args) throws Exception {
    Configuration settings = new Configuration();
    String[][] given = {
      {"execution.checkpointing.interval", "10 s"},
      {"execution.checkpointing.dir", Paths.get(args[1]).toAbsolutePath().toUri().toString()},
      {"restart-strategy.type", "none"},
      {"pipeline.object-reuse", "true"},
      {"parallelism.default", args[2]},
      {"table.local-time-zone", "UTC"},
      {"table.exec.mini-batch.enabled", "true"},
      {"table.exec.mini-batch.allow-latency", "2 s"},
      {"table.exec.mini-batch.size", "50000"},
      {"table.optimizer.distinct-agg.split.enabled", "true"},
    };
    for (String[] each : given) {
      settings.setString(each[0], each[1]);
    }
    TableEnvironment tables =
        TableEnvironment.create(EnvironmentSettings.newInstance().inStreamingMode().withConfiguration(settings).build());
    StringBuilder text = new StringBuilder();
    for (String line : Files.readAllLines(Paths.get(args[0]))) {
      if (!line.startsWith("--")) {
        text.append(line).append('\n');
      }
    }
    for (String statement : text.toString().split(";\\s*\n")) {
      if (!statement.isBlank()) {
        if (statement.strip().startsWith("INSERT")) {
          tables.executeSql(statement).await();
        } else {
          tables.executeSql(statement);
        }
      }
    }
    System.exit(0);
  }
}
