//! That leases go into the store, which no client sees: what is asked of the broker for it,
//! and a look at its count.

use anyhow::{Result, ensure};

use super::broker::Broker;
use super::process::say;
use crate::backends::Backend;

/// What comes before the tables of the configuration of a broker on `backend`. On a durable
/// store what stays out is a row long before it comes back; in memory it stays there, as it
/// does by default.
pub(super) fn configuration(backend: &str) -> &'static str {
    if is_durable(backend) {
        "lease-stay = \"1s\"\n\n"
    } else {
        ""
    }
}

/// Checks that leases of most of the messages that clients `left` alone went into the store.
///
/// Without them a round trip on a durable store says little about that store.
pub(super) fn check(broker: &Broker, backend: &str, left: u64) -> Result<()> {
    if !is_durable(backend) || left == 0 {
        return Ok(());
    }
    let stored = broker.stored_leases()?;
    say(&format!("interop: {stored} leases went into {backend}"));
    // The few whose time clients change may end in memory.
    ensure!(
        stored >= left / 2,
        "only {stored} leases went into the store, though clients left {left} messages alone \
         until they came back: is `lease-stay` of the broker shorter than that?"
    );
    Ok(())
}

fn is_durable(backend: &str) -> bool {
    backend.parse().is_ok_and(Backend::is_durable)
}
