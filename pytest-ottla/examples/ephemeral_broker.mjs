// Runs a broker for tests in Node.js, and orders faults and time. It needs no package. The broker ends with this process.
import assert from "node:assert";
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";

class EphemeralBroker {
  #answers = new Map();
  #number = 0;
  #process;

  static async start(command = "ottla", settings = {}) {
    const broker = new EphemeralBroker();
    const options = Object.entries(settings).flatMap(([name, value]) => ["--set", `${name}=${value}`]);
    broker.#process = spawn(command, ["serve", "--ephemeral", "--json", ...options], { stdio: ["pipe", "pipe", "inherit"] });
    const lines = createInterface({ input: broker.#process.stdout });
    const described = await new Promise((resolve, reject) => {
      lines.once("line", (line) => resolve(JSON.parse(line)));
      broker.#process.once("exit", (status) => reject(new Error(`the broker did not start: status ${status}`)));
    });
    lines.on("line", (line) => {
      const { id, result, error } = JSON.parse(line);
      const { resolve, reject } = broker.#answers.get(id);
      broker.#answers.delete(id);
      error === undefined ? resolve(result) : reject(new Error(error));
    });
    broker.bootstrapServers = described.bootstrap_servers;
    return broker;
  }

  // Sends a command, for example order("advance", { ms: 7 * 3_600_000 }).
  order(command, values = {}) {
    const id = ++this.#number;
    return new Promise((resolve, reject) => {
      this.#answers.set(id, { resolve, reject });
      this.#process.stdin.write(`${JSON.stringify({ id, do: command, ...values })}\n`);
    });
  }

  async close() {
    const ended = new Promise((resolve) => this.#process.once("exit", resolve));
    this.#process.stdin.end();
    await ended;
  }
}

const broker = await EphemeralBroker.start(process.argv[2], { "num.partitions": 1 });
const text = (value) => Buffer.from(value).toString("base64");

await broker.order("create_topic", { topic: "orders", partitions: 1, replication_factor: 1, config: { "retention.ms": "3600000" } });
await broker.order("fail", { api: "PRODUCE", error: "NOT_LEADER_OR_FOLLOWER", times: 2 }); // clients retry
assert.deepEqual(await broker.order("produce", { topic: "orders", records: [[null, text("old"), 0]] }), [0]);
await broker.order("roll", { topic: "orders" });
await broker.order("advance", { ms: 7 * 3_600_000 }); // the retention of an hour has passed
assert.deepEqual(await broker.order("produce", { topic: "orders", records: [[null, text("new"), 0]] }), [1]);
const records = await broker.order("consume", { topic: "orders", count: 1, timeout: 10 });
assert.deepEqual(records, [[0, 1, null, text("new")]]);
await broker.close();
console.log("new");
