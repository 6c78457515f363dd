//! The command line that all interop programs share.

use std::collections::HashMap;
use std::time::Duration;

/// The client receives frames of at most 4 MiB, and a frame is a whole message.
const BODY_CAP: usize = 4 * 1024 * 1024 - 4096;

pub struct Options {
    pub endpoint: String,
    pub topic: String,
    pub group: String,
    pub messages: usize,
    pub body_max: usize,
    pub invisible: Duration,
    pub tls: bool,
    pub limit: Duration,
}

impl Options {
    pub fn parse(arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut values = HashMap::from([("limit-seconds".to_owned(), "180".to_owned())]);
        let mut tls = false;
        let mut arguments = arguments;
        while let Some(argument) = arguments.next() {
            let name = argument
                .strip_prefix("--")
                .ok_or(format!("unexpected {argument}"))?;
            if name == "tls" {
                tls = true;
            } else {
                let value = arguments.next().ok_or(format!("--{name} needs a value"))?;
                values.insert(name.to_owned(), value);
            }
        }
        let text = |name: &str| {
            values
                .get(name)
                .cloned()
                .ok_or(format!("--{name} is missing"))
        };
        let number = |name: &str| -> Result<u32, String> {
            text(name)?
                .parse()
                .map_err(|error| format!("--{name}: {error}"))
        };
        let size = |name: &str| number(name).map(|number| number as usize);
        let seconds = |name: &str| number(name).map(|number| Duration::from_secs(number.into()));
        Ok(Self {
            endpoint: text("endpoint")?,
            topic: text("topic")?,
            group: text("group")?,
            messages: size("messages")?,
            body_max: size("max-body")?.min(BODY_CAP),
            invisible: seconds("invisible-seconds")?,
            tls,
            limit: seconds("limit-seconds")?,
        })
    }
}
