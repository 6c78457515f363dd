package interop;

import java.util.Arrays;
import java.util.Map;
import java.util.Set;

/** What message number {@code index} looks like, so that a receiver can rebuild it from its number. */
record Content(byte[] body, String tag, Set<String> keys, Map<String, String> properties) {
    /** A prime, so that a body shifted by a power of two shows. */
    private static final int PERIOD = 251;

    static Content of(int index, int count, int bodyMax) {
        byte[] body = new byte[size(index, count, bodyMax)];
        for (int position = 0; position < body.length; position++) {
            body[position] = (byte) (index + 7 * (position % PERIOD));
        }
        return new Content(
            body,
            "tag-" + index % 7,
            Set.of("key-" + index, "shared-" + index % 10),
            Map.of(
                "index", Integer.toString(index),
                "text", "größe-" + index + "-完了",
                "symbols", "a=b&c;d|e%41 \"" + index + "\" 'x'"));
    }

    private static int size(int index, int count, int bodyMax) {
        int[] largest = {count / 5, 2 * count / 5 + 1, 3 * count / 5, 4 * count / 5 + 1};
        if (Arrays.stream(largest).anyMatch(large -> large == index)) {
            return bodyMax;
        }
        if (index % 50 == 7) {
            return Math.min(bodyMax, 1024 << (index / 50 % 8));
        }
        return Math.min(bodyMax, 1 + index * 37 % 1024);
    }
}
