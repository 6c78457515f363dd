"""The official Python client through one round trip; see the README one folder up."""

import copy
import importlib.metadata
import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from content import content
from ledger import (ACK, EXTRA_SECONDS, KEEP, LENGTHEN, OLD_HANDLE, SHORT_SECONDS, SHORTEN, Ledger)
from options import arguments
from rocketmq import (ClientConfiguration, Credentials, FilterExpression, Message, Producer,
                      SimpleConsumer)

SENDERS = 8
RECEIVERS = 4
BATCH = 16
AWAIT_SECONDS = 3
SEND_FAILURES_MAX = 5
SHUTDOWN_SECONDS = 10
INVALID_RECEIPT_HANDLE = 40013
STORED_SECONDS = 1.5  # After these a durable store has the lease: the broker's stay is 1 s there.


class RoundTrip:
    def __init__(self, options):
        self.options = options
        self.ledger = Ledger(options.messages, options.invisible_seconds, can_change=True)
        # Deliveries that are over, by message; each index is touched by one thread at a time.
        self.stale = {}
        self.started_at = time.monotonic()
        self.stop = threading.Event()
        self.reported = threading.Lock()

    def say(self, text):
        print(f"{time.monotonic() - self.started_at:6.1f} s  {text}", flush=True)

    def configuration(self):
        return ClientConfiguration(self.options.endpoint, Credentials())

    def send_all(self):
        producer = Producer(self.configuration(), (self.options.topic,), tls_enable=self.options.tls)
        producer.startup()
        failures = []

        def send(index):
            if len(failures) >= SEND_FAILURES_MAX:
                return
            try:
                receipt = producer.send(self.message(index))
                self.ledger.on_sent(index, receipt.message_id)
            except Exception as error:
                failures.append(index)
                self.ledger.problem(f"send of message {index} failed: {error!r}")

        try:
            with ThreadPoolExecutor(SENDERS) as pool:
                list(pool.map(send, range(self.options.messages)))
        finally:
            producer.shutdown()
        self.say(f"sent {self.ledger.sent} of {self.options.messages}")
        return not failures

    def message(self, index):
        wanted = content(index, self.options.messages, self.options.max_body)
        message = Message()
        message.topic = self.options.topic
        message.body = wanted.body
        message.tag = wanted.tag
        for key in wanted.keys:
            message.keys = key  # The client's setter adds one key at a time.
        for name, value in wanted.properties.items():
            message.add_property(name, value)
        return message

    def receive_all(self):
        consumer = SimpleConsumer(self.configuration(), self.options.group,
                                  {self.options.topic: FilterExpression("*")},
                                  await_duration=AWAIT_SECONDS, tls_enable=self.options.tls)
        consumer.startup()
        receivers = [threading.Thread(target=self.receive, args=(consumer,), daemon=True)
                     for _ in range(RECEIVERS)]
        for receiver in receivers:
            receiver.start()
        told_first = told_second = False
        while any(receiver.is_alive() for receiver in receivers):
            if not told_first and self.ledger.received_first == self.options.messages:
                told_first = True
                self.say(f"received all {self.options.messages}")
            if not told_second and self.ledger.settled == self.options.messages:
                told_second = True
                self.say(f"received {self.ledger.received_second} again, all acked; now it must be quiet")
            time.sleep(0.05)
        self.say("receivers ended")
        consumer.shutdown()

    def receive(self, consumer):
        failures = 0
        while not self.stop.is_set() and not self.ledger.finished():
            asked_at = time.monotonic()
            try:
                messages = consumer.receive(BATCH, self.options.invisible_seconds)
            except Exception as error:
                self.ledger.problem(f"receive failed: {error!r}")
                failures += 1
                if failures >= SEND_FAILURES_MAX:
                    return
                time.sleep(0.5)
                continue
            arrived_at = time.monotonic()
            for message in messages:
                self.handle(consumer, message, asked_at, arrived_at)

    def handle(self, consumer, message, asked_at, arrived_at):
        index = self.verify(message)
        if index is None:
            return
        action = self.ledger.on_delivery(index, message.message_id, message.delivery_attempt,
                                         asked_at, arrived_at)
        try:
            if action == ACK:
                self.refuse_stale(consumer, index)
                consumer.ack(message)
                self.ledger.on_acked(index)
            elif action in (SHORTEN, LENGTHEN, KEEP, OLD_HANDLE):
                self.change(consumer, message, index, action)
        except Exception as error:
            self.ledger.problem(f"{action} of message {index} failed: {error!r}")

    def change(self, consumer, message, index, action):
        seconds = SHORT_SECONDS
        if action in (LENGTHEN, KEEP):
            seconds = self.options.invisible_seconds + EXTRA_SECONDS
        old = copy.copy(message)
        if action == KEEP:
            time.sleep(STORED_SECONDS)
        asked_at = time.monotonic()
        consumer.change_invisible_duration(message, seconds)
        self.ledger.on_changed(index, seconds, asked_at, time.monotonic())
        if action == KEEP:
            time.sleep(STORED_SECONDS)
            consumer.ack(message)
            self.ledger.on_acked(index)
        elif action == OLD_HANDLE:
            self.stale[index] = old

    def refuse_stale(self, consumer, index):
        """The handle of a delivery that is over must not touch the delivery that is out now."""
        old = self.stale.pop(index, None)
        if old is None:
            return
        try:
            consumer.ack(old)
            self.ledger.problem(f"ack of message {index} with the receipt handle of its first delivery was accepted")
        except Exception as error:
            if getattr(error, "code", None) != INVALID_RECEIPT_HANDLE:
                self.ledger.problem(f"ack of message {index} with the receipt handle of its first delivery: {error!r}")

    def verify(self, message):
        """The message's number if it is one of ours; whatever differs becomes a problem."""
        text = message.properties.get("index", "")
        index = int(text) if text.isdigit() else -1
        if not 0 <= index < self.options.messages:
            self.ledger.problem(f"a message that was not sent: id {message.message_id}, index {text!r}")
            return None
        wanted = content(index, self.options.messages, self.options.max_body)
        if message.topic != self.options.topic:
            self.ledger.problem(f"message {index}: topic {message.topic!r}")
        if message.body != wanted.body:
            self.ledger.problem(f"message {index}: body of {len(message.body)} bytes differs, "
                                f"sent were {len(wanted.body)}")
        if message.corrupted:
            self.ledger.problem(f"message {index}: the client calls the body corrupted")
        if message.tag != wanted.tag:
            self.ledger.problem(f"message {index}: tag {message.tag!r}, sent was {wanted.tag!r}")
        if set(message.keys) != wanted.keys:
            self.ledger.problem(f"message {index}: keys {sorted(message.keys)}")
        if message.properties != wanted.properties:
            self.ledger.problem(f"message {index}: properties {message.properties}")
        return index

    def report(self):
        """Prints the closing line once, whoever comes first, and ends the process."""
        self.reported.acquire()
        ledger = self.ledger
        ledger.missing()
        ok = not ledger.problems
        print(json.dumps({
            "language": "python",
            "client": "rocketmq-python-client " + importlib.metadata.version("rocketmq-python-client"),
            "sent": ledger.sent,
            "received_first": ledger.received_first,
            "acked_first": ledger.acked_first,
            "received_second": ledger.received_second,
            "changed": ledger.changed,
            "not_applicable": [],
            "ok": ok,
            "problems": ledger.problems,
        }), flush=True)
        # The client keeps threads that are not daemons after a failed start.
        os._exit(0 if ok else 1)

    def watch(self):
        # The margin leaves the client its time to shut down before the program is ended.
        limit = self.options.limit_seconds
        time.sleep(max(1, limit - SHUTDOWN_SECONDS))
        self.stop.set()
        time.sleep(min(limit, SHUTDOWN_SECONDS))
        self.ledger.problem(f"not done within {limit} s")
        self.report()


def main():
    trip = RoundTrip(arguments(__doc__))
    threading.Thread(target=trip.watch, daemon=True).start()
    try:
        if trip.send_all():
            trip.receive_all()
    except Exception as error:
        trip.ledger.problem(f"failed: {error!r}")
    trip.report()


if __name__ == "__main__":
    main()
