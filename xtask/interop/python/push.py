"""The official Python push consumers, of any order and in order; see the README one folder up."""

import importlib.metadata
import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from content import content
from options import arguments
from rocketmq import (ClientConfiguration, ConsumeResult, Credentials, FilterExpression, Message,
                      MessageListener, Producer, PushConsumer, SimpleConsumer)

SENDERS = 8
MESSAGE_GROUPS = 8
POISON_EVERY = 50  # Of the messages in order, one in so many is never consumed.
BACKOFF_SECONDS = 1  # The broker's delay after a first failure.
EARLY_SECONDS = 0.1
QUIET_SECONDS = 3  # After the last message, in which none must come again.
PROBLEMS_MAX = 20


def is_in_order(index):
    return index % 2 == 1


def message_group(index):
    return f"group-{index // 2 % MESSAGE_GROUPS}"


def is_poison(index):
    return is_in_order(index) and index // 2 % POISON_EVERY == POISON_EVERY - 1


def fails_once(index):
    return index % 4 == 2


class Trip:
    def __init__(self, options):
        self.options = options
        self.started_at = time.monotonic()
        self.lock = threading.Lock()
        self.reported = threading.Lock()
        self.tries = [0] * options.messages
        self.failed_at = {}
        self.done = set()
        self.places = {}  # Of each message group, the highest number that came.
        self.sent = self.acked_first = self.received_second = 0
        self.last_done_at = time.monotonic()
        self.problems = []

    def say(self, text):
        print(f"{time.monotonic() - self.started_at:6.1f} s  {text}", flush=True)

    def problem(self, text):
        with self.lock:
            self._problem(text)

    def _problem(self, text):
        if len(self.problems) < PROBLEMS_MAX:
            print(f"problem: {text}", flush=True)
            self.problems.append(text)

    def configuration(self):
        return ClientConfiguration(self.options.endpoint, Credentials())

    def topic(self, index):
        return self.options.topic + ("-in-order" if is_in_order(index) else "")

    def message(self, index):
        wanted = content(index, self.options.messages, self.options.max_body)
        message = Message()
        message.topic = self.topic(index)
        message.body = wanted.body
        message.tag = wanted.tag
        for name, value in wanted.properties.items():
            message.add_property(name, value)
        if is_in_order(index):
            message.message_group = message_group(index)
        return message

    def send_all(self):
        topics = (self.topic(0), self.topic(1))
        producer = Producer(self.configuration(), topics, tls_enable=self.options.tls)
        producer.startup()

        # The messages of a message group are sent by one thread, one after another.
        def send(sender):
            for index in range(self.options.messages):
                if index // 2 % MESSAGE_GROUPS == sender:
                    try:
                        producer.send(self.message(index))
                        with self.lock:
                            self.sent += 1
                    except Exception as error:
                        self.problem(f"send of message {index} failed: {error!r}")
                        return

        try:
            with ThreadPoolExecutor(SENDERS) as pool:
                list(pool.map(send, range(MESSAGE_GROUPS)))
        finally:
            producer.shutdown()
        self.say(f"sent {self.sent} of {self.options.messages}")

    def consume(self, message):
        now = time.monotonic()
        index = int(message.properties["index"])
        wanted = content(index, self.options.messages, self.options.max_body)
        with self.lock:
            if message.body != wanted.body or message.tag != wanted.tag:
                self._problem(f"message {index} is not what was sent")
            if index in self.done:
                self._problem(f"message {index} came back after it was consumed")
            self.tries[index] += 1
            if is_in_order(index):
                return self._in_order(index)
            return self._any_order(index, message.delivery_attempt, now)

    def _any_order(self, index, attempt, now):
        if attempt != self.tries[index]:
            self._problem(f"message {index}: delivery attempt {attempt} on delivery {self.tries[index]}")
        if self.tries[index] == 1 and fails_once(index):
            self.failed_at[index] = now
            return ConsumeResult.FAILURE
        if self.tries[index] == 2:
            self.received_second += 1
            waited = now - self.failed_at.get(index, now)
            if waited < BACKOFF_SECONDS - EARLY_SECONDS:
                self._problem(f"message {index} came back after {waited:.2f} s")
        self._done(index)
        return ConsumeResult.SUCCESS

    def _in_order(self, index):
        group = message_group(index)
        last = self.places.get(group, -1)
        if self.tries[index] == 1 and index < last:
            self._problem(f"message {index} of {group} came after {last}")
        # The one before it is consumed or given up, whatever became of it.
        before = index - 2 * MESSAGE_GROUPS
        if before >= 0 and self.tries[before] == 0:
            self._problem(f"message {index} of {group} came before {before}")
        self.places[group] = max(last, index)
        if is_poison(index):
            return ConsumeResult.FAILURE
        self._done(index)
        return ConsumeResult.SUCCESS

    def _done(self, index):
        self.done.add(index)
        self.acked_first += self.tries[index] == 1
        self.last_done_at = time.monotonic()

    def consume_all(self):
        trip = self

        class Listener(MessageListener):
            def consume(self, message):
                return trip.consume(message)

        consumers = [
            PushConsumer(self.configuration(), self.options.group, Listener(),
                         {self.topic(0): FilterExpression("*")}, tls_enable=self.options.tls),
            PushConsumer(self.configuration(), self.options.group + "-in-order", Listener(),
                         {self.topic(1): FilterExpression("*")}, tls_enable=self.options.tls),
        ]
        for consumer in consumers:
            consumer.startup()
        poisons = {index for index in range(self.options.messages) if is_poison(index)}
        while len(self.done) + len(poisons) < self.options.messages or any(
                self.tries[index] == 0 for index in poisons):
            time.sleep(0.05)
        self.say(f"consumed {len(self.done)}, of them {self.received_second} at the second try")
        self.dead_letters(poisons)
        while time.monotonic() < self.last_done_at + QUIET_SECONDS:
            time.sleep(0.05)
        for consumer in consumers:
            consumer.shutdown()

    def dead_letters(self, poisons):
        """What was never consumed is in the dead-letter topic of its group, once."""
        topic = f"%DLQ%{self.options.group}-in-order"
        reader = SimpleConsumer(self.configuration(), self.options.group + "-dead",
                                {topic: FilterExpression("*")}, await_duration=1,
                                tls_enable=self.options.tls)
        reader.startup()
        found = []
        quiet = 0
        while quiet < QUIET_SECONDS:
            letters = reader.receive(16, 30)
            for letter in letters:
                found.append(int(letter.properties["index"]))
                reader.ack(letter)
            complete = len(found) >= len(poisons)
            quiet = quiet + 1 if complete and not letters else 0
        if sorted(found) != sorted(poisons):
            self.problem(f"dead letters are {sorted(found)}, not {sorted(poisons)}")
        self.say(f"found {len(found)} dead letters")
        reader.shutdown()

    def report(self):
        self.reported.acquire()
        ok = not self.problems and self.sent == self.options.messages
        print(json.dumps({
            "language": "python",
            "client": "rocketmq-python-client " + importlib.metadata.version("rocketmq-python-client"),
            "sent": self.sent,
            "received_first": sum(tries > 0 for tries in self.tries),
            "acked_first": self.acked_first,
            "received_second": self.received_second,
            "changed": 0,
            "not_applicable": [],
            "ok": ok,
            "problems": self.problems,
        }), flush=True)
        # The client keeps threads that are not daemons.
        os._exit(0 if ok else 1)

    def watch(self):
        time.sleep(self.options.limit_seconds)
        absent = [index for index, tries in enumerate(self.tries) if tries == 0][:5]
        self.problem(f"not done within {self.options.limit_seconds} s; never came e.g. {absent}")
        self.report()


def main():
    trip = Trip(arguments(__doc__))
    threading.Thread(target=trip.watch, daemon=True).start()
    try:
        trip.send_all()
        trip.consume_all()
    except Exception as error:
        trip.problem(f"failed: {error!r}")
    trip.report()


if __name__ == "__main__":
    main()
