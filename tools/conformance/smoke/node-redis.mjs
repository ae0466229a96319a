// The usual life of a node-redis client.
import { createClient } from "redis";
import { later, port, refused, step } from "./steps.mjs";

const url = `redis://127.0.0.1:${port}`;
const client = createClient({ url, socket: { reconnectStrategy: false } });
client.on("error", () => {});
const second = async (options) => {
  const made = createClient({ url, socket: { reconnectStrategy: false }, ...options });
  made.on("error", () => {});
  await made.connect();
  return made;
};
await step("connect", async () => (await client.connect(), client.ping()));
await step("set and get", async () => [await client.set("a", "1"), await client.get("a"), await client.get("none")]);
await step("set with options", () => Promise.all([
  client.set("o", "1", { EX: 100, NX: true }), client.set("o", "2", { NX: true }), client.set("o", "3", { XX: true, GET: true }), client.set("o", "4", { KEEPTTL: true }), client.ttl("o")]));
await step("a large value", async () => [await client.set("large", "x".repeat(3_000_000)), (await client.get("large")).length]);
await step("pipeline", () => Promise.all([client.set("p", "1"), client.incr("p"), client.get("p"), client.mGet(["p", "p2{p}", "none{p}"]), client.mSet({ m: "1", "n{m}": "2" })]));
await step("many at once", () => Promise.all(Array.from({ length: 500 }, (_, i) => client.incr("n" + (i % 7)))));
await step("transaction", () => client.multi().set("t", "1").incrBy("t", 5).get("t").exec());
await step("transaction over a watched key", async () => {
  const other = await second();
  await client.watch("w");
  await other.set("w", "1");
  other.destroy();
  return refused(client.multi().set("w", "2").exec());
});
await step("publish and subscribe", async () => {
  const subscriber = await second();
  const message = later();
  const pattern = later();
  await subscriber.subscribe("c", (...words) => message.tell(words));
  await subscriber.pSubscribe("d*", (...words) => pattern.tell(words));
  const heard = [await client.publish("c", "hello"), await client.publish("d1", "there")];
  const told = [await message.told, await pattern.told];
  await subscriber.unsubscribe();
  await subscriber.pUnsubscribe();
  const after = await subscriber.set("after", "1");
  subscriber.destroy();
  return [heard, told, after];
});
await step("script", async () => {
  const lua = "redis.call('set', KEYS[1], ARGV[1]); return redis.call('incrby', KEYS[1], ARGV[2])";
  const hash = await client.scriptLoad(lua);
  return [hash, await client.evalSha(hash, { keys: ["s"], arguments: ["3", "4"] }), await client.eval(lua, { keys: ["s"], arguments: ["5", "6"] }), await client.get("s"),
    await refused(client.evalSha("0".repeat(40), { keys: ["s"], arguments: [] }))];
});
await step("blocking pop", async () => {
  const blocked = await second();
  const popped = blocked.blPop("q", 5);
  const told = [await client.rPush("q", "x"), await popped, await blocked.blPop("q", 0.1)];
  blocked.destroy();
  return told;
});
await step("types", () => Promise.all([
  client.rPush("l", ["1", "2"]), client.lRange("l", 0, -1), client.hSet("h", { f: "1", g: "2" }), client.hGetAll("h"), client.sAdd("e", ["1", "2"]), client.sIsMember("e", "2"),
  client.zAdd("z", [{ score: 1.5, value: "m" }, { score: 2, value: "n" }]), client.zRangeWithScores("z", 0, -1), client.xAdd("x", "1-1", { f: "v" }), client.xRange("x", "-", "+"),
  client.pfAdd("y", ["1", "2"]), client.pfCount("y"), client.setBit("i", 7, 1), client.bitCount("i"),
  client.geoAdd("j", { longitude: 13.361389, latitude: 38.115556, member: "Palermo" }), client.geoPos("j", "Palermo")]));
await step("keys and lives", () => Promise.all([
  client.expire("a", 100), client.ttl("a"), client.persist("a"), client.rename("a", "a2{a}"), client.type("a2{a}"), client.exists(["a", "a2{a}"]), client.del(["a2{a}", "b{a}"]), client.unlink("none")]));
await step("scan", async () => {
  const found = [];
  for await (const keys of client.scanIterator({ MATCH: "n*", COUNT: 3 })) found.push(...keys);
  return found.sort();
});
await step("errors", async () => [await refused(client.incr("l")), await refused(client.sendCommand(["nosuchcommand", "x"])), await refused(client.sendCommand(["get"]))]);
await step("another database", async () => {
  const other = await second({ database: 3 });
  const told = [await other.set("a", "three"), await other.get("a"), await client.get("a")];
  other.destroy();
  return told;
});
await step("RESP3", async () => {
  const other = await second({ RESP: 3 });
  const told = [await other.hGetAll("h"), await other.zRangeWithScores("z", 0, -1), await other.get("none"), await other.sMembers("e")];
  other.destroy();
  return told;
});
await step("client cache", async () => {
  const cached = await second({ RESP: 3, clientSideCache: { ttl: 0, maxEntries: 0, evictPolicy: "LRU" } });
  await client.set("cc", "1");
  const before = [await cached.get("cc"), await cached.get("cc")];
  await client.set("cc", "2");
  // Its own next answer comes behind the invalidation.
  let after = await cached.get("cc");
  for (let asked = 0; asked < 1000 && after === "1"; asked++) after = (await cached.ping(), await cached.get("cc"));
  cached.destroy();
  return [before, after];
});
await step("quit", () => client.close());
process.exit();
