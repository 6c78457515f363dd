//! What message number `index` looks like, so that a receiver can rebuild it from its number.

use std::collections::{HashMap, HashSet};

/// A prime, so that a body shifted by a power of two shows.
const PERIOD: usize = 251;

pub struct Content {
    pub body: Vec<u8>,
    pub tag: String,
    pub keys: HashSet<String>,
    pub properties: HashMap<String, String>,
}

pub fn content(index: usize, count: usize, body_max: usize) -> Content {
    let size = size(index, count, body_max);
    Content {
        body: (0..size).map(|position| byte(index, position)).collect(),
        tag: format!("tag-{}", index % 7),
        keys: [format!("key-{index}"), format!("shared-{}", index % 10)].into(),
        properties: [
            ("index", index.to_string()),
            ("text", format!("größe-{index}-完了")),
            ("symbols", format!("a=b&c;d|e%41 \"{index}\" 'x'")),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into(),
    }
}

fn byte(index: usize, position: usize) -> u8 {
    let low_byte = (index + 7 * (position % PERIOD)) & 0xff;
    u8::try_from(low_byte).expect("one byte was masked out")
}

fn size(index: usize, count: usize, body_max: usize) -> usize {
    let largest = [
        count / 5,
        2 * count / 5 + 1,
        3 * count / 5,
        4 * count / 5 + 1,
    ];
    if largest.contains(&index) {
        body_max
    } else if index % 50 == 7 {
        body_max.min(1024 << (index / 50 % 8))
    } else {
        body_max.min(1 + index * 37 % 1024)
    }
}
