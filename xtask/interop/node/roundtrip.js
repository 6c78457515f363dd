// The official Node.js client through one round trip; see the README one folder up.
'use strict';

const fs = require('node:fs');
const { parseArgs } = require('node:util');
const { Producer, SimpleConsumer } = require('rocketmq-client-nodejs');
const { content } = require('./content.js');
const { EXTRA_MS, Ledger, SHORT_MS } = require('./ledger.js');

const SENDERS = 16;
const RECEIVERS = 4;
const BATCH = 16;
const AWAIT_MS = 3000;
const FAILURES_MAX = 5;
const SHUTDOWN_MS = 10_000;
const INVALID_RECEIPT_HANDLE = 40013;
// The client receives frames of at most 4 MiB, and a frame is a whole message.
const BODY_CAP = 4 * 1024 * 1024 - 4096;

const CLIENT_VERSION = require('rocketmq-client-nodejs/package.json').version;
// The default logger of the client writes to the home folder and complains at the second shutdown.
const quiet = { info() {}, warn() {}, error() {}, debug() {} };

function options() {
  const { values } = parseArgs({
    options: {
      endpoint: { type: 'string' },
      topic: { type: 'string' },
      group: { type: 'string' },
      messages: { type: 'string' },
      'max-body': { type: 'string' },
      'invisible-seconds': { type: 'string' },
      tls: { type: 'boolean', default: false },
      'limit-seconds': { type: 'string', default: '180' },
    },
  });
  for (const name of [ 'endpoint', 'topic', 'group', 'messages', 'max-body', 'invisible-seconds' ]) {
    if (values[name] === undefined) throw new Error(`--${name} is missing`);
  }
  return {
    endpoint: values.endpoint,
    topic: values.topic,
    group: values.group,
    messages: Number(values.messages),
    bodyMax: Math.min(Number(values['max-body']), BODY_CAP),
    invisibleMs: Number(values['invisible-seconds']) * 1000,
    tls: values.tls,
    limitMs: Number(values['limit-seconds']) * 1000,
  };
}

const sleep = ms => new Promise(resolve => setTimeout(resolve, ms));

class RoundTrip {
  constructor(options) {
    this.options = options;
    this.ledger = new Ledger(options.messages, options.invisibleMs, true);
    this.stale = new Map();
    this.stopped = false;
    this.reported = false;
  }

  say(text) {
    console.log(`${(performance.now() / 1000).toFixed(1).padStart(6)} s  ${text}`);
  }

  connection() {
    return { endpoints: this.options.endpoint, namespace: '', sslEnabled: this.options.tls, logger: quiet };
  }

  content(index) {
    return content(index, this.options.messages, this.options.bodyMax);
  }

  async sendAll() {
    const producer = new Producer({ ...this.connection(), topics: [ this.options.topic ], maxAttempts: 3 });
    await producer.startup();
    let next = 0;
    let failures = 0;
    const sender = async () => {
      while (next < this.options.messages && failures < FAILURES_MAX && !this.stopped) {
        const index = next++;
        try {
          const receipt = await producer.send({ topic: this.options.topic, ...this.content(index) });
          this.ledger.onSent(index, receipt.messageId);
        } catch (error) {
          failures++;
          this.ledger.problem(`send of message ${index} failed: ${error}`);
        }
      }
    };
    await Promise.all(Array.from({ length: SENDERS }, sender));
    this.say(`sent ${this.ledger.sent} of ${this.options.messages}`);
    await producer.shutdown();
    return failures === 0;
  }

  async receiveAll() {
    const consumer = new SimpleConsumer({
      ...this.connection(),
      consumerGroup: this.options.group,
      subscriptions: new Map([[ this.options.topic, '*' ]]),
      awaitDuration: AWAIT_MS,
    });
    await consumer.startup();
    const telling = this.tell();
    await Promise.all(Array.from({ length: RECEIVERS }, () => this.receive(consumer)));
    clearInterval(telling);
    this.say('receivers ended');
    await consumer.shutdown();
  }

  tell() {
    let toldFirst = false;
    let toldSecond = false;
    return setInterval(() => {
      const { ledger } = this;
      if (!toldFirst && ledger.receivedFirst === ledger.count) {
        toldFirst = true;
        this.say(`received all ${ledger.count}`);
      }
      if (!toldSecond && ledger.settled === ledger.count) {
        toldSecond = true;
        this.say(`received ${ledger.receivedSecond} again, all acked; now it must be quiet`);
      }
    }, 50);
  }

  async receive(consumer) {
    let failures = 0;
    while (!this.stopped && !this.ledger.finished()) {
      const askedAt = performance.now();
      let messages;
      try {
        messages = await consumer.receive(BATCH, this.options.invisibleMs);
      } catch (error) {
        this.ledger.problem(`receive failed: ${error}`);
        if (++failures >= FAILURES_MAX) return;
        await sleep(500);
        continue;
      }
      const arrivedAt = performance.now();
      for (const message of messages) await this.handle(consumer, message, askedAt, arrivedAt);
    }
  }

  async handle(consumer, message, askedAt, arrivedAt) {
    const index = this.verify(message);
    if (index === undefined) return;
    const action = this.ledger.onDelivery(index, message.messageId, message.deliveryAttempt, askedAt, arrivedAt);
    try {
      if (action === 'ack') {
        await this.refuseStale(consumer, index);
        await consumer.ack(message);
        this.ledger.onAcked(index);
      } else if (action !== 'expire' && action !== 'nothing') {
        await this.change(consumer, message, index, action);
      }
    } catch (error) {
      this.ledger.problem(`${action} of message ${index} failed: ${error}`);
    }
  }

  async change(consumer, message, index, action) {
    const long = action === 'lengthen' || action === 'keep';
    const ms = long ? this.options.invisibleMs + EXTRA_MS : SHORT_MS;
    const old = Object.assign(Object.create(Object.getPrototypeOf(message)), message);
    const askedAt = performance.now();
    await consumer.changeInvisibleDuration(message, ms);
    this.ledger.onChanged(index, ms, askedAt, performance.now());
    if (action === 'keep') {
      await consumer.ack(message);
      this.ledger.onAcked(index);
    } else if (action === 'old handle') {
      this.stale.set(index, old);
    }
  }

  // The handle of a delivery that is over must not touch the delivery that is out now.
  async refuseStale(consumer, index) {
    const old = this.stale.get(index);
    if (old === undefined) return;
    this.stale.delete(index);
    const what = `ack of message ${index} with the receipt handle of its first delivery`;
    try {
      await consumer.ack(old);
      this.ledger.problem(`${what} was accepted`);
    } catch (error) {
      if (error.code !== INVALID_RECEIPT_HANDLE) this.ledger.problem(`${what}: ${error}`);
    }
  }

  // The message's number if it is one of ours; whatever differs becomes a problem.
  verify(message) {
    const text = message.properties.get('index') ?? '';
    const index = /^\d+$/.test(text) ? Number(text) : -1;
    if (index < 0 || index >= this.options.messages) {
      this.ledger.problem(`a message that was not sent: id ${message.messageId}, index "${text}"`);
      return undefined;
    }
    const wanted = this.content(index);
    const differs = (what, got) => this.ledger.problem(`message ${index}: ${what} ${got}`);
    if (message.topic !== this.options.topic) differs('topic', message.topic);
    if (!wanted.body.equals(message.body)) {
      differs('body', `of ${message.body.length} bytes differs, sent were ${wanted.body.length}`);
    }
    if (message.corrupted) differs('body', 'is called corrupted by the client');
    if (message.tag !== wanted.tag) differs('tag', message.tag);
    if ([ ...message.keys ].sort().join() !== [ ...wanted.keys ].sort().join()) differs('keys', message.keys);
    const same = message.properties.size === wanted.properties.size &&
      [ ...wanted.properties ].every(([ name, value ]) => message.properties.get(name) === value);
    if (!same) differs('properties', JSON.stringify([ ...message.properties ]));
    return index;
  }

  // Prints the closing line once, whoever comes first, and ends the process.
  report() {
    if (this.reported) return;
    this.reported = true;
    const { ledger } = this;
    ledger.missing();
    const ok = ledger.problems.length === 0;
    const line = JSON.stringify({
      language: 'node',
      client: `rocketmq-client-nodejs ${CLIENT_VERSION}`,
      sent: ledger.sent,
      received_first: ledger.receivedFirst,
      acked_first: ledger.ackedFirst,
      received_second: ledger.receivedSecond,
      changed: ledger.changed,
      not_applicable: [],
      ok,
      problems: ledger.problems,
    });
    fs.writeSync(1, `${line}\n`);
    process.exit(ok ? 0 : 1);
  }

  // The client's start waits without a limit for the server's settings, so the limit is ours.
  watch() {
    const { limitMs } = this.options;
    setTimeout(() => { this.stopped = true; }, Math.max(1000, limitMs - SHUTDOWN_MS));
    setTimeout(() => {
      this.ledger.problem(`not done within ${limitMs / 1000} s`);
      this.report();
    }, limitMs);
  }
}

const trip = new RoundTrip(options());
// The client handles settings in promises of its own; a fault there shows only here.
process.on('unhandledRejection', error => trip.ledger.problem(`the client rejected: ${error}`));
trip.watch();
(async () => {
  try {
    if (await trip.sendAll()) await trip.receiveAll();
  } catch (error) {
    trip.ledger.problem(`failed: ${error}${error.cause ? `: ${error.cause}` : ''}`);
  }
  trip.report();
})();
