// What the smoke tests of Node's clients share: steps with a name, whose outcome and answer are
// written as ../outcomes.py says.
import { appendFileSync } from "node:fs";

export const port = Number(process.env.PORT);

function plain(answer) {
  if (answer instanceof Error) return `error ${answer.message}`;
  if (Buffer.isBuffer(answer)) return answer.toString("latin1");
  if (answer instanceof Map) return [...answer].map(plain);
  if (Array.isArray(answer)) return answer.map(plain);
  if (answer && typeof answer === "object") {
    return Object.entries(answer).map(([name, value]) => [name, plain(value)]);
  }
  return answer === undefined ? null : answer;
}

export async function step(test, run) {
  const line = { test, outcome: "passed", why: "" };
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error("no answer within 30 s")), 30000);
  });
  try {
    line.answer = plain(await Promise.race([run(), late]));
  } catch (error) {
    Object.assign(line, { outcome: "failed", why: String(error.message || error) });
  }
  clearTimeout(timer);
  appendFileSync(process.env.RECORD, JSON.stringify(line) + "\n");
}

// A promise, and what fulfils it.
export function later() {
  let tell;
  const told = new Promise((resolve) => (tell = resolve));
  return { told, tell };
}

export const refused = (promise) => promise.then(() => "no error", (error) => error.message);
