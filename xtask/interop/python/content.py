"""What message number ``i`` looks like, so that a receiver can rebuild it from its number."""

from dataclasses import dataclass

PERIOD = 251  # A prime, so that a body shifted by a power of two shows.


@dataclass(frozen=True)
class Content:
    body: bytes
    tag: str
    keys: frozenset
    properties: dict


def size(index, count, body_max):
    largest = {count // 5, 2 * count // 5 + 1, 3 * count // 5, 4 * count // 5 + 1}
    if index in largest:
        return body_max
    if index % 50 == 7:
        return min(body_max, 1024 << (index // 50 % 8))
    return min(body_max, 1 + index * 37 % 1024)


def content(index, count, body_max):
    wanted = size(index, count, body_max)
    period = bytes((index + 7 * position) % 256 for position in range(PERIOD))
    return Content(
        body=(period * (wanted // PERIOD + 1))[:wanted],
        tag=f"tag-{index % 7}",
        keys=frozenset({f"key-{index}", f"shared-{index % 10}"}),
        properties={
            "index": str(index),
            "text": f"größe-{index}-完了",
            "symbols": f"a=b&c;d|e%41 \"{index}\" 'x'",
        },
    )
