import io.lettuce.core.KeyValue;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.ScanArgs;
import io.lettuce.core.ScriptOutputType;
import io.lettuce.core.SetArgs;
import io.lettuce.core.TrackingArgs;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import io.lettuce.core.support.caching.CacheAccessor;
import io.lettuce.core.support.caching.CacheFrontend;
import io.lettuce.core.support.caching.ClientSideCaching;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;

/** The usual life of a Lettuce client. */
class LettuceSmoke extends Steps {
  public static void main(String[] words) throws Exception {
    RedisClient client = RedisClient.create("redis://127.0.0.1:" + PORT);
    CompletableFuture<StatefulRedisConnection<String, String>> connected = new CompletableFuture<>();
    step("connect", () -> {
      connected.complete(client.connect());
      return connected.get().sync().ping();
    });
    if (!connected.isDone()) System.exit(0);
    StatefulRedisConnection<String, String> connection = connected.get();
    RedisCommands<String, String> sync = connection.sync();
    step("set and get", () -> List.of(sync.set("a", "1"), sync.get("a"), String.valueOf(sync.get("none")), sync.mset(Map.of("m", "1")), sync.mget("m", "none{m}")));
    step("set with options", () -> List.of(sync.set("o", "1", SetArgs.Builder.nx().ex(100)), String.valueOf(sync.set("o", "2", SetArgs.Builder.nx())), sync.setGet("o", "3"), sync.ttl("o")));
    step("a large value", () -> List.of(sync.set("large", "x".repeat(3_000_000)), sync.get("large").length()));
    step("pipeline", () -> {
      List<RedisFuture<Long>> futures = new ArrayList<>();
      for (int i = 0; i < 500; i++) futures.add(connection.async().incrby("n" + i % 7, i));
      List<Object> told = new ArrayList<>();
      for (RedisFuture<Long> future : futures) told.add(future.get());
      return told;
    });
    step("transaction", () -> {
      sync.multi();
      sync.set("t", "1");
      sync.incrby("t", 5);
      sync.get("t");
      return new ArrayList<>(sync.exec().stream().toList());
    });
    step("transaction over a watched key", () -> {
      sync.watch("w");
      try (StatefulRedisConnection<String, String> other = client.connect()) {
        other.sync().set("w", "1");
      }
      sync.multi();
      sync.set("w", "2");
      return sync.exec().wasDiscarded();
    });
    step("publish and subscribe", () -> {
      CompletableFuture<Object> heard = new CompletableFuture<>();
      try (StatefulRedisPubSubConnection<String, String> subscriber = client.connectPubSub()) {
        subscriber.addListener(new RedisPubSubAdapter<>() {
          @Override
          public void message(String channel, String message) {
            heard.complete(channel + " " + message);
          }
        });
        subscriber.sync().subscribe("c");
        return List.of(sync.publish("c", "hello"), heard.get());
      }
    });
    step("script", () -> {
      String hash = sync.scriptLoad(ADD);
      String[] keys = {"s"};
      return List.of(hash, sync.<Long>evalsha(hash, ScriptOutputType.INTEGER, keys, "3", "4"), sync.<Long>eval(ADD, ScriptOutputType.INTEGER, keys, "5", "6"),
          refused(() -> sync.evalsha("0".repeat(40), ScriptOutputType.INTEGER)));
    });
    step("blocking pop", () -> {
      try (StatefulRedisConnection<String, String> other = client.connect()) {
        RedisFuture<KeyValue<String, String>> popped = other.async().blpop(5, "q");
        return List.of(sync.rpush("q", "x"), popped.get(), String.valueOf(other.sync().blpop(0.1, "q")));
      }
    });
    step("types", () -> List.of(sync.rpush("l", "1", "2"), sync.lrange("l", 0, -1), sync.hset("h{l}", "f", "1"), sync.hgetall("h{l}"), sync.sadd("e", "1"), sync.smembers("e"),
        sync.zadd("z", 1.5, "m"), sync.zrangeWithScores("z", 0, -1), sync.pfadd("y", "1"), sync.pfcount("y"), sync.setbit("i", 7, 1), sync.bitcount("i"),
        sync.expire("l", 100), sync.ttl("l"), sync.rename("l", "l2{l}"), sync.type("l2{l}"), sync.exists("l", "l2{l}"), sync.del("l2{l}", "h{l}"), refused(() -> sync.incr("e"))));
    step("scan", () -> new TreeSet<>(sync.scan(ScanArgs.Builder.matches("n*").limit(10000)).getKeys()));
    step("client cache", () -> {
      Map<String, String> near = new ConcurrentHashMap<>();
      try (StatefulRedisConnection<String, String> cached = client.connect()) {
        CacheFrontend<String, String> frontend = ClientSideCaching.enable(CacheAccessor.forMap(near), cached, TrackingArgs.Builder.enabled());
        sync.set("cc", "1");
        String before = frontend.get("cc");
        sync.set("cc", "2");
        String after = frontend.get("cc");
        // Until the invalidation has come, or the step's time is over.
        while (after.equals("1")) {
          cached.sync().ping();
          after = frontend.get("cc");
        }
        return List.of(before, after);
      }
    });
    step("another database", () -> List.of(sync.select(3), sync.set("a", "three"), sync.get("a"), sync.select(0), String.valueOf(sync.get("a"))));
    step("close", () -> {
      connection.close();
      return "";
    });
    System.exit(0);
  }
}
