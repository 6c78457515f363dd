// What may come back, when and how often: the promises that a round trip checks.
// Knows nothing of the client; times are milliseconds of a monotonic clock.
'use strict';

const EARLY_MS = 100; // The two sides round their clocks apart.
const LATE_MS = 6000;
const QUIET_MS = 2000; // On top of the invisible duration, after the last ack.
const SHORT_MS = 2000;
const EXTRA_MS = 5000;
const PROBLEMS_MAX = 20;

class Ledger {
  constructor(count, invisibleMs, canChange) {
    this.count = count;
    this.invisibleMs = invisibleMs;
    this.entries = Array.from({ length: count },
      () => ({ id: undefined, deliveries: 0, settled: false, earliest: 0, changedDue: undefined }));
    this.plans = new Map();
    const lastOdd = count % 2 === 0 ? count - 1 : count - 2;
    [ 'shorten', 'lengthen', 'keep', 'old handle' ].forEach((plan, back) => {
      if (canChange && lastOdd - 2 * back > 0) this.plans.set(lastOdd - 2 * back, plan);
    });
    const kept = [ ...this.plans.values() ].filter(plan => plan === 'keep').length;
    this.secondExpected = Math.floor(count / 2) - kept;
    this.sent = this.receivedFirst = this.ackedFirst = this.receivedSecond = this.changed = this.settled = 0;
    this.firstDoneAt = undefined;
    this.lastSettledAt = undefined;
    this.ids = new Map();
    this.problems = [];
    this.problemsDropped = 0;
  }

  problem(text) {
    if (this.problems.length < PROBLEMS_MAX) {
      console.log(`problem: ${text}`);
      this.problems.push(text);
    } else {
      this.problemsDropped++;
    }
  }

  onSent(index, id) {
    this.sent++;
    if (this.ids.has(id)) this.problem(`messages ${this.ids.get(id)} and ${index} share the id ${id}`);
    this.ids.set(id, index);
    this.entries[index].id = id;
  }

  // Checks one delivery and says what to do with the message.
  onDelivery(index, id, attempt, askedAt, arrivedAt) {
    const entry = this.entries[index];
    entry.deliveries++;
    if (entry.id !== id) this.problem(`message ${index} came with id ${id}, sent was ${entry.id}`);
    if (attempt !== entry.deliveries) {
      this.problem(`message ${index}: delivery attempt ${attempt} on delivery ${entry.deliveries}`);
    }
    if (entry.settled) {
      this.problem(`message ${index} came back after its ack`);
      return 'nothing';
    }
    if (entry.deliveries === 1) return this.#first(index, entry, askedAt);
    if (entry.deliveries > 2) this.problem(`message ${index} came ${entry.deliveries} times`);
    return this.#second(index, entry, arrivedAt);
  }

  #first(index, entry, askedAt) {
    this.receivedFirst++;
    entry.earliest = askedAt + this.invisibleMs;
    if (this.receivedFirst === this.count) this.firstDoneAt = performance.now();
    return index % 2 === 0 ? 'ack' : this.plans.get(index) ?? 'expire';
  }

  #second(index, entry, arrivedAt) {
    this.receivedSecond++;
    const early = entry.earliest - arrivedAt;
    if (early > EARLY_MS) this.problem(`message ${index} came back ${Math.round(early)} ms too early`);
    if (entry.changedDue !== undefined && this.firstDoneAt !== undefined) {
      const late = arrivedAt - Math.max(entry.changedDue, this.firstDoneAt);
      if (late > LATE_MS) this.problem(`message ${index} came back ${Math.round(late)} ms after its changed time`);
    }
    return 'ack';
  }

  onChanged(index, ms, askedAt, answeredAt) {
    this.entries[index].earliest = askedAt + ms;
    this.entries[index].changedDue = answeredAt + ms;
    this.changed++;
  }

  onAcked(index) {
    const entry = this.entries[index];
    if (entry.deliveries === 1 && index % 2 === 0) this.ackedFirst++;
    entry.settled = true;
    this.settled++;
    this.lastSettledAt = performance.now();
  }

  // True once all is acked and each acked message has had the time to come back wrongly.
  finished() {
    return this.settled >= this.count && performance.now() > this.lastSettledAt + this.invisibleMs + QUIET_MS;
  }

  // Names what never came, at the end of a run.
  missing() {
    for (const [ times, got, expected ] of [
      [ 1, this.receivedFirst, this.count ],
      [ 2, this.receivedSecond, this.secondExpected ],
    ]) {
      if (got === expected) continue;
      const absent = [ ...this.entries.keys() ]
        .filter(index => this.entries[index].deliveries < times && !this.entries[index].settled).slice(0, 5);
      this.problem(`delivery ${times}: ${got} of ${expected} messages came, missing e.g. ${absent.join(', ')}`);
    }
    if (this.problemsDropped > 0) this.problems.push(`and ${this.problemsDropped} more problems`);
  }
}

module.exports = { EXTRA_MS, Ledger, SHORT_MS };
