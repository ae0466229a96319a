import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** What the smoke tests of Java's clients share: steps with a name, whose outcome and answer are written as outcomes.py says. */
class Steps {
  static final int PORT = Integer.parseInt(System.getenv("PORT"));
  static final String ADD = "redis.call('set', KEYS[1], ARGV[1]); return redis.call('incrby', KEYS[1], ARGV[2])";

  /** Runs one step, for 30 seconds at most. */
  static void step(String test, Callable<Object> run) throws Exception {
    String outcome = "passed", why = "", answer = "";
    CompletableFuture<Object> told = new CompletableFuture<>();
    Thread thread = new Thread(() -> {
      try {
        told.complete(run.call());
      } catch (Throwable error) {
        told.completeExceptionally(error);
      }
    });
    thread.setDaemon(true);
    thread.start();
    try {
      answer = String.valueOf(told.get(30, TimeUnit.SECONDS));
    } catch (TimeoutException late) {
      outcome = "failed";
      why = "no answer within 30 s";
    } catch (Exception error) {
      outcome = "failed";
      why = String.valueOf(error.getCause());
    }
    String line = String.format("{\"test\": %s, \"outcome\": \"%s\", \"why\": %s, \"answer\": %s}%n", quote(test), outcome, quote(why), quote(answer));
    Files.writeString(Path.of(System.getenv("RECORD")), line, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
  }

  /** What a call is refused with. */
  static String refused(Callable<Object> run) {
    try {
      return "no error: " + run.call();
    } catch (Exception error) {
      return error.getMessage();
    }
  }

  private static String quote(String text) {
    StringBuilder quoted = new StringBuilder("\"");
    for (char sign : text.toCharArray()) {
      quoted.append(sign < ' ' || sign == '"' || sign == '\\' || sign > '~' ? String.format("\\u%04x", (int) sign) : String.valueOf(sign));
    }
    return quoted.append('"').toString();
  }
}
