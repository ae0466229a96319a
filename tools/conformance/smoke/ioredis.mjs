// The usual life of an ioredis client.
import Redis from "ioredis";
import { later, port, refused, step } from "./steps.mjs";

const made = () => process.env.CLUSTER ? new Redis.Cluster([{ host: "127.0.0.1", port }]) : new Redis({ port });
const redis = made();
await step("connect", () => redis.ping());
await step("set and get", async () => [await redis.set("a", "1"), await redis.get("a"), await redis.get("none")]);
await step("bytes", async () => [await redis.set("b{a}", Buffer.from([0, 13, 10, 255])), await redis.getBuffer("b{a}")]);
await step("a large value", async () => [await redis.set("large", "x".repeat(3_000_000)), (await redis.get("large")).length]);
await step("set with options", () => Promise.all([
  redis.set("o", "1", "EX", 100, "NX"), redis.set("o", "2", "NX"), redis.set("o", "3", "XX", "GET"), redis.set("o", "4", "KEEPTTL"), redis.ttl("o")]));
await step("pipeline", () => redis.pipeline().set("p", 1).incr("p").lpush("p", 1).get("p").mget("p", "p2{p}").exec());
await step("many at once", () => Promise.all(Array.from({ length: 500 }, (_, i) => redis.incr("n" + (i % 7)))));
await step("transaction", () => redis.multi().set("t", 1).incrby("t", 5).get("t").exec());
await step("transaction with a wrong command", () => refused(redis.multi().set("t", 1).call("nosuchcommand").exec()));
await step("transaction over a watched key", async () => {
  const other = made();
  await redis.watch("w");
  await other.set("w", 1);
  other.disconnect();
  return redis.multi().set("w", 2).exec();
});
await step("publish and subscribe", async () => {
  const subscriber = made();
  const message = later();
  const pattern = later();
  subscriber.on("message", (...words) => message.tell(words));
  subscriber.on("pmessage", (...words) => pattern.tell(words));
  const counts = [await subscriber.subscribe("c"), await subscriber.psubscribe("d*")];
  const heard = [await redis.publish("c", "hello"), await redis.publish("d1", "there")];
  const told = [await message.told, await pattern.told, await subscriber.unsubscribe("c"), await subscriber.punsubscribe("d*")];
  const after = await subscriber.ping();
  subscriber.disconnect();
  // A node of a cluster counts those who listen at it alone.
  return [counts, process.env.CLUSTER ? [] : heard, told, after];
});
await step("script", async () => {
  redis.defineCommand("add", { numberOfKeys: 1, lua: "redis.call('set', KEYS[1], ARGV[1]); return redis.call('incrby', KEYS[1], ARGV[2])" });
  return [await redis.add("s", 3, 4), await redis.add("s", 5, 6), await redis.get("s"), await redis.eval("return {KEYS[1], ARGV[1], 3}", 1, "k", "v")];
});
await step("blocking pop", async () => {
  const blocked = made();
  const popped = blocked.blpop("q", 5);
  const told = [await redis.rpush("q", "x"), await popped, await blocked.blpop("q", 0.1)];
  blocked.disconnect();
  return told;
});
await step("types", () => Promise.all([
  redis.rpush("l", 1, 2, 3), redis.lrange("l", 0, -1), redis.hset("h", "f", 1, "g", 2), redis.hgetall("h"), redis.sadd("e", 1, 2), redis.sismember("e", 2),
  redis.zadd("z", 1.5, "m", 2, "n"), redis.zrange("z", 0, -1, "WITHSCORES"), redis.xadd("x", "1-1", "f", "v"), redis.xrange("x", "-", "+"),
  redis.pfadd("y", 1, 2), redis.pfcount("y"), redis.setbit("i", 7, 1), redis.bitcount("i"), redis.geoadd("j", 13.361389, 38.115556, "Palermo"), redis.geopos("j", "Palermo")]));
await step("keys and lives", () => Promise.all([
  redis.expire("a", 100), redis.ttl("a"), redis.persist("a"), redis.rename("a", "a2{a}"), redis.type("a2{a}"), redis.exists("a", "a2{a}"), redis.del("a2{a}", "b{a}"), redis.unlink("none")]));
await step("scan", async () => {
  const found = [];
  for await (const keys of redis.scanStream({ match: "n*", count: 3 })) found.push(...keys);
  return found.sort();
});
await step("errors", async () => [await refused(redis.incr("l")), await refused(redis.call("nosuchcommand", "x")), await refused(redis.call("get"))]);
await step("another database", async () => {
  const other = new Redis({ port, db: 3 });
  const told = [await other.set("a", "three"), await other.get("a"), await redis.get("a")];
  other.disconnect();
  return told;
});
await step("monitor", async () => {
  const monitor = await redis.monitor();
  const seen = later();
  monitor.on("monitor", (_, words) => words[1] === "seen" && seen.tell(words));
  await redis.set("seen", 1);
  const told = await seen.told;
  monitor.disconnect();
  return told;
});
await step("quit", () => redis.quit());
process.exit();
