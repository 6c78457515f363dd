package interop;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.stream.IntStream;

/**
 * What may come back, when and how often: the promises that a round trip checks.
 *
 * <p>Knows nothing of the client; times are nanoseconds of the monotonic clock.
 */
final class Ledger {
    static final long SECOND = 1_000_000_000L;
    static final long SHORT = 2 * SECOND;
    static final long EXTRA = 5 * SECOND;

    /** The two sides round their clocks apart. */
    private static final long EARLY_MAX = SECOND / 10;
    private static final long LATE_MAX = 6 * SECOND;
    /** On top of the invisible duration, after the last ack. */
    private static final long QUIET = 2 * SECOND;
    private static final int PROBLEMS_MAX = 20;

    /** What a receiver does with a delivery. */
    enum Action { ACK, EXPIRE, SHORTEN, LENGTHEN, KEEP, OLD_HANDLE, NOTHING }

    /** One message: what was sent and what happened to it so far. */
    private static final class Entry {
        private String id;
        private int deliveries;
        private boolean settled;
        private long earliest;
        private Long changedDue;
    }

    private final int count;
    private final long invisible;
    private final List<Entry> entries;
    private final Map<Integer, Action> plans = new HashMap<>();
    private final Map<String, Integer> ids = new HashMap<>();
    private final List<String> problems = new ArrayList<>();
    private int secondExpected;
    private int sent;
    private int receivedFirst;
    private int ackedFirst;
    private int receivedSecond;
    private int changed;
    private int settled;
    private int problemsDropped;
    private Long firstDoneAt;
    private Long lastSettledAt;

    Ledger(int count, long invisible) {
        this.count = count;
        this.invisible = invisible;
        this.entries = IntStream.range(0, count).mapToObj(index -> new Entry()).toList();
        this.secondExpected = count / 2;
        int index = count - 1 - count % 2;
        for (Action plan : List.of(Action.SHORTEN, Action.LENGTHEN, Action.KEEP, Action.OLD_HANDLE)) {
            if (index > 0) {
                plans.put(index, plan);
                secondExpected -= plan == Action.KEEP ? 1 : 0;
            }
            index -= 2;
        }
    }

    synchronized void problem(String text) {
        if (problems.size() < PROBLEMS_MAX) {
            System.out.println("problem: " + text);
            problems.add(text);
        } else {
            problemsDropped++;
        }
    }

    synchronized void onSent(int index, String id) {
        sent++;
        Integer other = ids.put(id, index);
        if (other != null) {
            problem("messages " + other + " and " + index + " share the id " + id);
        }
        entries.get(index).id = id;
    }

    /** Checks one delivery and says what to do with the message. */
    synchronized Action onDelivery(int index, String id, int attempt, long askedAt, long arrivedAt) {
        Entry entry = entries.get(index);
        entry.deliveries++;
        if (!id.equals(entry.id)) {
            problem("message " + index + " came with id " + id + ", sent was " + entry.id);
        }
        if (attempt != entry.deliveries) {
            problem("message " + index + ": delivery attempt " + attempt + " on delivery " + entry.deliveries);
        }
        if (entry.settled) {
            problem("message " + index + " came back after its ack");
            return Action.NOTHING;
        }
        if (entry.deliveries == 1) {
            return first(index, entry, askedAt);
        }
        if (entry.deliveries > 2) {
            problem("message " + index + " came " + entry.deliveries + " times");
        }
        return second(index, entry, arrivedAt);
    }

    private Action first(int index, Entry entry, long askedAt) {
        receivedFirst++;
        entry.earliest = askedAt + invisible;
        if (receivedFirst == count) {
            firstDoneAt = System.nanoTime();
        }
        return index % 2 == 0 ? Action.ACK : plans.getOrDefault(index, Action.EXPIRE);
    }

    private Action second(int index, Entry entry, long arrivedAt) {
        receivedSecond++;
        long early = entry.earliest - arrivedAt;
        if (early > EARLY_MAX) {
            problem("message " + index + " came back " + seconds(early) + " s too early");
        }
        if (entry.changedDue != null && firstDoneAt != null) {
            long late = arrivedAt - Math.max(entry.changedDue, firstDoneAt);
            if (late > LATE_MAX) {
                problem("message " + index + " came back " + seconds(late) + " s after its changed time");
            }
        }
        return Action.ACK;
    }

    synchronized void onChanged(int index, long by, long askedAt, long answeredAt) {
        entries.get(index).earliest = askedAt + by;
        entries.get(index).changedDue = answeredAt + by;
        changed++;
    }

    synchronized void onAcked(int index) {
        Entry entry = entries.get(index);
        if (entry.deliveries == 1 && index % 2 == 0) {
            ackedFirst++;
        }
        entry.settled = true;
        settled++;
        lastSettledAt = System.nanoTime();
    }

    /** True once all is acked and each acked message has had the time to come back wrongly. */
    synchronized boolean finished() {
        return settled >= count && System.nanoTime() - lastSettledAt > invisible + QUIET;
    }

    synchronized int sent() {
        return sent;
    }

    synchronized int receivedFirst() {
        return receivedFirst;
    }

    synchronized int receivedSecond() {
        return receivedSecond;
    }

    synchronized int settled() {
        return settled;
    }

    synchronized boolean ok() {
        return problems.isEmpty();
    }

    /** Names what never came, at the end of a run. */
    synchronized void missing() {
        missing(1, receivedFirst, count);
        missing(2, receivedSecond, secondExpected);
        if (problemsDropped > 0) {
            problems.add("and " + problemsDropped + " more problems");
        }
    }

    private void missing(int times, int got, int expected) {
        if (got == expected) {
            return;
        }
        List<Integer> absent = IntStream.range(0, count)
            .filter(index -> entries.get(index).deliveries < times && !entries.get(index).settled)
            .limit(5).boxed().toList();
        problem("delivery " + times + ": " + got + " of " + expected + " messages came, missing e.g. " + absent);
    }

    /** The closing line; the JDK has no writer of JSON. */
    synchronized String line(String client) {
        List<String> quoted = problems.stream().map(Ledger::quoted).toList();
        return "{\"language\":\"java\",\"client\":" + quoted(client)
            + ",\"sent\":" + sent
            + ",\"received_first\":" + receivedFirst
            + ",\"acked_first\":" + ackedFirst
            + ",\"received_second\":" + receivedSecond
            + ",\"changed\":" + changed
            + ",\"not_applicable\":[],\"ok\":" + problems.isEmpty()
            + ",\"problems\":[" + String.join(",", quoted) + "]}";
    }

    private static String quoted(String text) {
        StringBuilder quoted = new StringBuilder("\"");
        for (char character : text.toCharArray()) {
            if (character == '"' || character == '\\') {
                quoted.append('\\').append(character);
            } else if (character < ' ') {
                quoted.append(String.format(Locale.ROOT, "\\u%04x", (int) character));
            } else {
                quoted.append(character);
            }
        }
        return quoted.append('"').toString();
    }

    private static String seconds(long nanos) {
        return String.format(Locale.ROOT, "%.2f", (double) nanos / SECOND);
    }
}
