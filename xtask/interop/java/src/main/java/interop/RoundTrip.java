package interop;

import interop.Ledger.Action;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.java.exception.BadRequestException;
import org.apache.rocketmq.client.java.message.MessageViewImpl;
import org.apache.rocketmq.client.java.misc.MetadataUtils;

/** The official Java client through one round trip; see the README one folder up. */
final class RoundTrip {
    private static final int SENDERS = 8;
    private static final int RECEIVERS = 4;
    private static final int BATCH = 16;
    private static final Duration AWAIT = Duration.ofSeconds(3);
    private static final int FAILURES_MAX = 5;
    private static final int SHUTDOWN_SECONDS = 10;
    private static final int INVALID_RECEIPT_HANDLE = 40013;

    private record Options(String endpoint, String topic, String group, int messages, int bodyMax,
        int invisibleSeconds, boolean tls, int limitSeconds) {

        static Options parse(String[] arguments) {
            Map<String, String> values = new HashMap<>(Map.of("limit-seconds", "180"));
            boolean tls = false;
            for (int at = 0; at < arguments.length; at++) {
                if (arguments[at].equals("--tls")) {
                    tls = true;
                } else if (arguments[at].startsWith("--") && at + 1 < arguments.length) {
                    values.put(arguments[at].substring(2), arguments[++at]);
                } else {
                    throw new IllegalArgumentException("unexpected " + arguments[at]);
                }
            }
            for (String name : List.of("endpoint", "topic", "group", "messages", "max-body", "invisible-seconds")) {
                if (!values.containsKey(name)) {
                    throw new IllegalArgumentException("--" + name + " is missing");
                }
            }
            return new Options(values.get("endpoint"), values.get("topic"), values.get("group"),
                Integer.parseInt(values.get("messages")), Integer.parseInt(values.get("max-body")),
                Integer.parseInt(values.get("invisible-seconds")), tls,
                Integer.parseInt(values.get("limit-seconds")));
        }
    }

    private final Options options;
    private final Ledger ledger;
    /** The handles of deliveries that are over, by message. */
    private final Map<Integer, String> stale = new ConcurrentHashMap<>();
    private final ClientServiceProvider provider = ClientServiceProvider.loadService();
    private final long startedAt = System.nanoTime();
    private volatile boolean stopped;

    private RoundTrip(Options options) {
        this.options = options;
        this.ledger = new Ledger(options.messages, options.invisibleSeconds * Ledger.SECOND);
    }

    private void say(String text) {
        double seconds = (double) (System.nanoTime() - startedAt) / Ledger.SECOND;
        System.out.println(String.format(Locale.ROOT, "%6.1f s  %s", seconds, text));
    }

    private ClientConfiguration configuration() {
        return ClientConfiguration.newBuilder().setEndpoints(options.endpoint).enableSsl(options.tls).build();
    }

    private boolean sendAll() throws Exception {
        AtomicInteger failures = new AtomicInteger();
        try (Producer producer = provider.newProducerBuilder()
            .setClientConfiguration(configuration()).setTopics(options.topic).build()) {
            AtomicInteger next = new AtomicInteger();
            inParallel(SENDERS, () -> {
                int index;
                while (failures.get() < FAILURES_MAX && !stopped
                    && (index = next.getAndIncrement()) < options.messages) {
                    try {
                        ledger.onSent(index, producer.send(message(index)).getMessageId().toString());
                    } catch (ClientException | RuntimeException error) {
                        failures.incrementAndGet();
                        ledger.problem("send of message " + index + " failed: " + error);
                    }
                }
            });
            say("sent " + ledger.sent() + " of " + options.messages);
        }
        return failures.get() == 0;
    }

    private Message message(int index) {
        Content wanted = content(index);
        var builder = provider.newMessageBuilder()
            .setTopic(options.topic)
            .setBody(wanted.body())
            .setTag(wanted.tag())
            .setKeys(wanted.keys().toArray(String[]::new));
        wanted.properties().forEach(builder::addProperty);
        return builder.build();
    }

    private Content content(int index) {
        return Content.of(index, options.messages, options.bodyMax);
    }

    private void receiveAll() throws Exception {
        try (SimpleConsumer consumer = provider.newSimpleConsumerBuilder()
            .setClientConfiguration(configuration())
            .setConsumerGroup(options.group)
            .setAwaitDuration(AWAIT)
            .setSubscriptionExpressions(
                Map.of(options.topic, new FilterExpression("*", FilterExpressionType.TAG)))
            .build()) {
            daemon(this::tell);
            inParallel(RECEIVERS, () -> receive(consumer));
            say("receivers ended");
        }
    }

    private void tell() {
        while (ledger.receivedFirst() < options.messages) {
            pause(50);
        }
        say("received all " + options.messages);
        while (ledger.settled() < options.messages) {
            pause(50);
        }
        say("received " + ledger.receivedSecond() + " again, all acked; now it must be quiet");
    }

    private void receive(SimpleConsumer consumer) {
        int failures = 0;
        while (!stopped && !ledger.finished()) {
            long askedAt = System.nanoTime();
            try {
                List<MessageView> messages = consumer.receive(BATCH, Duration.ofSeconds(options.invisibleSeconds));
                long arrivedAt = System.nanoTime();
                for (MessageView message : messages) {
                    handle(consumer, (MessageViewImpl) message, askedAt, arrivedAt);
                }
            } catch (ClientException | RuntimeException error) {
                ledger.problem("receive failed: " + error);
                if (++failures >= FAILURES_MAX) {
                    return;
                }
                pause(500);
            }
        }
    }

    private void handle(SimpleConsumer consumer, MessageViewImpl message, long askedAt, long arrivedAt) {
        Integer index = verify(message);
        if (index == null) {
            return;
        }
        Action action = ledger.onDelivery(index, message.getMessageId().toString(),
            message.getDeliveryAttempt(), askedAt, arrivedAt);
        try {
            switch (action) {
                case ACK -> {
                    refuseStale(consumer, message, index);
                    consumer.ack(message);
                    ledger.onAcked(index);
                }
                case SHORTEN, LENGTHEN, KEEP, OLD_HANDLE -> change(consumer, message, index, action);
                case EXPIRE, NOTHING -> { }
            }
        } catch (ClientException | RuntimeException error) {
            ledger.problem(action + " of message " + index + " failed: " + error);
        }
    }

    private void change(SimpleConsumer consumer, MessageViewImpl message, int index, Action action)
        throws ClientException {
        boolean isLong = action == Action.LENGTHEN || action == Action.KEEP;
        long by = isLong ? options.invisibleSeconds * Ledger.SECOND + Ledger.EXTRA : Ledger.SHORT;
        String old = message.getReceiptHandle();
        long askedAt = System.nanoTime();
        consumer.changeInvisibleDuration(message, Duration.ofNanos(by));
        ledger.onChanged(index, by, askedAt, System.nanoTime());
        if (action == Action.KEEP) {
            consumer.ack(message);
            ledger.onAcked(index);
        } else if (action == Action.OLD_HANDLE) {
            stale.put(index, old);
        }
    }

    /** The handle of a delivery that is over must not touch the delivery that is out now. */
    private void refuseStale(SimpleConsumer consumer, MessageViewImpl message, int index)
        throws ClientException {
        String old = stale.remove(index);
        if (old == null) {
            return;
        }
        String current = message.getReceiptHandle();
        String what = "ack of message " + index + " with the receipt handle of its first delivery";
        message.setReceiptHandle(old);
        try {
            consumer.ack(message);
            ledger.problem(what + " was accepted");
        } catch (BadRequestException error) {
            // The code is in the text alone.
            if (!error.getMessage().contains("response-code=" + INVALID_RECEIPT_HANDLE)) {
                ledger.problem(what + ": " + error);
            }
        } finally {
            message.setReceiptHandle(current);
        }
    }

    /** The message's number if it is one of ours; whatever differs becomes a problem. */
    private Integer verify(MessageViewImpl message) {
        String text = message.getProperties().getOrDefault("index", "");
        int index = text.matches("\\d{1,9}") ? Integer.parseInt(text) : -1;
        if (index < 0 || index >= options.messages) {
            ledger.problem("a message that was not sent: id " + message.getMessageId() + ", index " + text);
            return null;
        }
        Content wanted = content(index);
        List<String> differences = new ArrayList<>();
        if (!message.getTopic().equals(options.topic)) {
            differences.add("topic " + message.getTopic());
        }
        if (!message.getBody().equals(ByteBuffer.wrap(wanted.body()))) {
            differences.add("body of " + message.getBody().remaining() + " bytes differs, sent were "
                + wanted.body().length);
        }
        if (message.isCorrupted()) {
            differences.add("the client calls the body corrupted");
        }
        if (!message.getTag().equals(Optional.of(wanted.tag()))) {
            differences.add("tag " + message.getTag() + ", sent was " + wanted.tag());
        }
        if (!Set.copyOf(message.getKeys()).equals(wanted.keys())) {
            differences.add("keys " + message.getKeys());
        }
        if (!message.getProperties().equals(wanted.properties())) {
            differences.add("properties " + message.getProperties());
        }
        differences.forEach(difference -> ledger.problem("message " + index + ": " + difference));
        return index;
    }

    /** Prints the closing line and ends the process; whoever comes first keeps the lock until then. */
    private void report() {
        synchronized (ledger) {
            ledger.missing();
            System.out.println(ledger.line("rocketmq-client-java " + MetadataUtils.getVersion()));
            System.out.flush();
            // Not exit: hooks of the client may wait for a broker that is gone.
            Runtime.getRuntime().halt(ledger.ok() ? 0 : 1);
        }
    }

    private void watch() {
        pause(1000L * Math.max(1, options.limitSeconds - SHUTDOWN_SECONDS));
        stopped = true;
        pause(1000L * Math.min(options.limitSeconds, SHUTDOWN_SECONDS));
        ledger.problem("not done within " + options.limitSeconds + " s");
        report();
    }

    private static void inParallel(int count, Runnable work) throws InterruptedException {
        List<Thread> threads = new ArrayList<>();
        for (int started = 0; started < count; started++) {
            threads.add(daemon(work));
        }
        for (Thread thread : threads) {
            thread.join();
        }
    }

    private static Thread daemon(Runnable work) {
        Thread thread = new Thread(work);
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    private static void pause(long millis) {
        try {
            Thread.sleep(millis);
        } catch (InterruptedException error) {
            throw new IllegalStateException("nobody interrupts these threads", error);
        }
    }

    /** The client wraps what went wrong, sometimes more than once. */
    private static String causes(Throwable error) {
        Throwable cause = error.getCause();
        return cause == null ? "" : " <- " + cause + causes(cause);
    }

    public static void main(String[] arguments) {
        RoundTrip trip = new RoundTrip(Options.parse(arguments));
        daemon(trip::watch);
        try {
            if (trip.sendAll()) {
                trip.receiveAll();
            }
        } catch (Exception error) {
            trip.ledger.problem("failed: " + error + causes(error));
        }
        trip.report();
    }
}
