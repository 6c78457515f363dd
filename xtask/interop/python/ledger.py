"""What may come back, when and how often: the promises that a round trip checks.

Knows nothing of the client; times are seconds of a monotonic clock.
"""

import threading
import time

EARLY_SECONDS = 0.1  # The two sides round their clocks apart.
LATE_SECONDS = 6.0
QUIET_SECONDS = 2  # On top of the invisible duration, after the last ack.
SHORT_SECONDS = 2
EXTRA_SECONDS = 5
PROBLEMS_MAX = 20

ACK, EXPIRE, SHORTEN, LENGTHEN, KEEP, OLD_HANDLE, NOTHING = (
    "ack", "expire", "shorten", "lengthen", "keep", "old handle", "nothing")


class Entry:
    """One message: what was sent and what happened to it so far."""

    def __init__(self):
        self.message_id = None
        self.deliveries = 0
        self.settled = False
        self.earliest = 0.0
        self.changed_due = None


class Ledger:
    def __init__(self, count, invisible_seconds, can_change):
        self.count = count
        self.invisible_seconds = invisible_seconds
        self.lock = threading.Lock()
        self.entries = [Entry() for _ in range(count)]
        self.plans = {}
        if can_change:
            last_odd = count - 1 if count % 2 == 0 else count - 2
            for back, plan in enumerate((SHORTEN, LENGTHEN, KEEP, OLD_HANDLE)):
                if last_odd - 2 * back > 0:
                    self.plans[last_odd - 2 * back] = plan
        kept = sum(plan == KEEP for plan in self.plans.values())
        self.second_expected = count // 2 - kept
        self.sent = self.received_first = self.acked_first = 0
        self.received_second = self.changed = 0
        self.settled = 0
        self.first_done_at = None
        self.last_settled_at = None
        self.ids = {}
        self.problems = []
        self.problems_dropped = 0

    def problem(self, text):
        with self.lock:
            self._problem(text)

    def _problem(self, text):
        if len(self.problems) < PROBLEMS_MAX:
            print(f"problem: {text}", flush=True)
            self.problems.append(text)
        else:
            self.problems_dropped += 1

    def on_sent(self, index, message_id):
        with self.lock:
            self.sent += 1
            if message_id in self.ids:
                self._problem(f"messages {self.ids[message_id]} and {index} share the id {message_id}")
            self.ids[message_id] = index
            self.entries[index].message_id = message_id

    def on_delivery(self, index, message_id, attempt, asked_at, arrived_at):
        """Checks one delivery and says what to do with the message."""
        with self.lock:
            entry = self.entries[index]
            entry.deliveries += 1
            if entry.message_id != message_id:
                self._problem(f"message {index} came with id {message_id}, sent was {entry.message_id}")
            if attempt != entry.deliveries:
                self._problem(f"message {index}: delivery attempt {attempt} on delivery {entry.deliveries}")
            if entry.settled:
                self._problem(f"message {index} came back after its ack")
                return NOTHING
            if entry.deliveries == 1:
                return self._first(index, entry, asked_at)
            if entry.deliveries > 2:
                self._problem(f"message {index} came {entry.deliveries} times")
            return self._second(index, entry, arrived_at)

    def _first(self, index, entry, asked_at):
        self.received_first += 1
        entry.earliest = asked_at + self.invisible_seconds
        if self.received_first == self.count:
            self.first_done_at = time.monotonic()
        return ACK if index % 2 == 0 else self.plans.get(index, EXPIRE)

    def _second(self, index, entry, arrived_at):
        self.received_second += 1
        early = entry.earliest - arrived_at
        if early > EARLY_SECONDS:
            self._problem(f"message {index} came back {early:.2f} s too early")
        if entry.changed_due is not None and self.first_done_at is not None:
            late = arrived_at - max(entry.changed_due, self.first_done_at)
            if late > LATE_SECONDS:
                self._problem(f"message {index} came back {late:.2f} s after its changed time")
        return ACK

    def on_changed(self, index, seconds, asked_at, answered_at):
        with self.lock:
            entry = self.entries[index]
            entry.earliest = asked_at + seconds
            entry.changed_due = answered_at + seconds
            self.changed += 1

    def on_acked(self, index):
        with self.lock:
            entry = self.entries[index]
            if entry.deliveries == 1 and index % 2 == 0:
                self.acked_first += 1
            entry.settled = True
            self.settled += 1
            self.last_settled_at = time.monotonic()

    def finished(self):
        """True once all is acked and each acked message has had the time to come back wrongly."""
        with self.lock:
            if self.settled < self.count:
                return False
            return time.monotonic() > self.last_settled_at + self.invisible_seconds + QUIET_SECONDS

    def missing(self):
        """Names what never came, at the end of a run."""
        with self.lock:
            for times in (1, 2):
                expected = self.count if times == 1 else self.second_expected
                got = self.received_first if times == 1 else self.received_second
                if got != expected:
                    absent = [index for index, entry in enumerate(self.entries)
                              if entry.deliveries < times and not entry.settled][:5]
                    self._problem(f"delivery {times}: {got} of {expected} messages came, missing e.g. {absent}")
            if self.problems_dropped:
                self.problems.append(f"and {self.problems_dropped} more problems")
