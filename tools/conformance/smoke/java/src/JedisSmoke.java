import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.Transaction;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.params.SetParams;

/** The usual life of a Jedis connection. */
class JedisSmoke extends Steps {
  public static void main(String[] words) throws Exception {
    Jedis jedis = new Jedis("127.0.0.1", PORT);
    step("connect", jedis::ping);
    step("set and get", () -> List.of(jedis.set("a", "1"), jedis.get("a"), String.valueOf(jedis.get("none")), jedis.mset("m", "1", "n{m}", "2"), String.valueOf(jedis.mget("m", "n{m}", "none{m}"))));
    step("set with options", () -> List.of(jedis.set("o", "1", SetParams.setParams().nx().ex(100)), String.valueOf(jedis.set("o", "2", SetParams.setParams().nx())), jedis.setGet("o", "3"), jedis.ttl("o")));
    step("a large value", () -> List.of(jedis.set("large", "x".repeat(3_000_000)), jedis.get("large").length()));
    step("pipeline", () -> {
      Pipeline pipeline = jedis.pipelined();
      for (int i = 0; i < 500; i++) pipeline.incrBy("n" + i % 7, i);
      pipeline.lpush("n1", "x");
      return pipeline.syncAndReturnAll();
    });
    step("transaction", () -> {
      Transaction transaction = jedis.multi();
      transaction.set("t", "1");
      transaction.incrBy("t", 5);
      transaction.get("t");
      return transaction.exec();
    });
    step("transaction over a watched key", () -> {
      jedis.watch("w");
      try (Jedis other = new Jedis("127.0.0.1", PORT)) {
        other.set("w", "1");
      }
      Transaction transaction = jedis.multi();
      transaction.set("w", "2");
      return transaction.exec();
    });
    step("publish and subscribe", () -> {
      CompletableFuture<Object> subscribed = new CompletableFuture<>(), heard = new CompletableFuture<>();
      JedisPubSub listener = new JedisPubSub() {
        @Override
        public void onSubscribe(String channel, int count) {
          subscribed.complete(count);
        }

        @Override
        public void onMessage(String channel, String message) {
          heard.complete(channel + " " + message);
          unsubscribe();
        }
      };
      Thread thread = new Thread(() -> {
        try (Jedis subscriber = new Jedis("127.0.0.1", PORT)) {
          subscriber.subscribe(listener, "c");
        }
      });
      thread.start();
      Object count = subscribed.get();
      long received = jedis.publish("c", "hello");
      Object message = heard.get();
      thread.join();
      return List.of(count, received, message);
    });
    step("script", () -> {
      String hash = jedis.scriptLoad(ADD);
      return List.of(hash, jedis.evalsha(hash, List.of("s"), List.of("3", "4")), jedis.eval(ADD, List.of("s"), List.of("5", "6")), refused(() -> jedis.evalsha("0".repeat(40))));
    });
    step("blocking pop", () -> {
      CompletableFuture<Object> popped = CompletableFuture.supplyAsync(() -> {
        try (Jedis blocked = new Jedis("127.0.0.1", PORT)) {
          return blocked.blpop(5, "q");
        }
      });
      return List.of(jedis.rpush("q", "x"), popped.get(), String.valueOf(jedis.blpop(0.1, "q")));
    });
    step("types", () -> List.of(jedis.rpush("l", "1", "2"), jedis.lrange("l", 0, -1), jedis.hset("h{l}", Map.of("f", "1")), jedis.hgetAll("h{l}"), jedis.sadd("e", "1"), jedis.smembers("e"),
        jedis.zadd("z", 1.5, "m"), jedis.zrangeWithScores("z", 0, -1), jedis.pfadd("y", "1"), jedis.pfcount("y"), jedis.setbit("i", 7, true), jedis.bitcount("i"),
        jedis.expire("l", 100), jedis.ttl("l"), jedis.rename("l", "l2{l}"), jedis.type("l2{l}"), jedis.exists("l", "l2{l}"), jedis.del("l2{l}", "h{l}"), refused(() -> jedis.incr("e"))));
    step("scan", () -> new TreeSet<>(jedis.scan("0", new ScanParams().match("n*").count(10000)).getResult()));
    step("another database", () -> List.of(jedis.select(3), jedis.set("a", "three"), jedis.get("a"), jedis.select(0), String.valueOf(jedis.get("a"))));
    step("close", () -> {
      jedis.close();
      return "";
    });
    System.exit(0);
  }
}
