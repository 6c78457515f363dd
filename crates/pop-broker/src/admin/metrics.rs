//! `/metrics`: counts in Prometheus' text format. There is no label for a topic or a group,
//! whose number nobody bounds.

use std::{fmt::Write, time::Duration};

use axum::{
    extract::State,
    http::header::{CONTENT_TYPE, HeaderName},
};
use pop_broker::{
    Broker, Health,
    data::{DataService, DataStats},
};

const FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(super) async fn show(
    State(broker): State<Broker>,
    State(data): State<Option<DataService>>,
) -> ([(HeaderName, &'static str); 1], String) {
    let text = render(&broker, data.as_ref());
    ([(CONTENT_TYPE, FORMAT)], text)
}

fn render(broker: &Broker, data: Option<&DataService>) -> String {
    let mut text = String::new();
    let mut add = |name: &str, kind: &str, help: &str, value: u64| {
        // Writing to a String can't fail.
        let _ = write!(
            text,
            "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n"
        );
    };
    let serving = *broker.health().borrow() == Health::Serving;
    add(
        "pop_serving",
        "gauge",
        "1 while the store is open, 0 while it is being opened anew.",
        serving.into(),
    );
    // While the store is not open nobody knows, and a missing value is not a zero.
    if let (Ok(topics), Ok(groups)) = (broker.topics(), broker.groups()) {
        let count = |length: usize| u64::try_from(length).unwrap_or(u64::MAX);
        add(
            "pop_topics",
            "gauge",
            "Topics, those of the broker's own included.",
            count(topics.len()),
        );
        add(
            "pop_groups",
            "gauge",
            "Consumer groups.",
            count(groups.len()),
        );
    }
    if let Ok(retention) = broker.retention() {
        add(
            "pop_retention_stopped",
            "gauge",
            "1 while no message ends by its age because the clock jumped.",
            retention.stopped_by.is_some().into(),
        );
    }
    let counts = broker.counts();
    for (name, help, value) in [
        (
            "pop_messages_sent_total",
            "Messages taken from producers.",
            counts.sent,
        ),
        (
            "pop_messages_received_total",
            "Deliveries to consumers.",
            counts.received,
        ),
        (
            "pop_messages_acked_total",
            "Deliveries acknowledged.",
            counts.acked,
        ),
        (
            "pop_leases_stored_total",
            "Deliveries that went from memory into the store.",
            counts.stored,
        ),
        (
            "pop_messages_revived_total",
            "Messages made ready again after their time was up.",
            counts.revived,
        ),
        (
            "pop_messages_dead_lettered_total",
            "Messages moved to a dead-letter topic.",
            counts.dead_lettered,
        ),
        (
            "pop_messages_quarantined_total",
            "Messages put in quarantine when they were to be handed out.",
            counts.quarantined,
        ),
        (
            "pop_quarantine_redriven_total",
            "Records put back to work from quarantine.",
            counts.redriven,
        ),
        (
            "pop_quarantine_dropped_total",
            "Records dropped from quarantine by an operator.",
            counts.quarantine_dropped,
        ),
        (
            "pop_messages_expired_total",
            "Messages ended by their age.",
            counts.expired,
        ),
        (
            "pop_messages_expired_unacked_total",
            "Messages ended by their age that a group had not acknowledged, once a group.",
            counts.expired_unacked,
        ),
    ] {
        add(name, "counter", help, value);
    }
    if let Some(data) = data {
        let stats = data.stats();
        render_data(&stats, add);
        render_endings(&mut text, &stats);
    }
    text
}

/// The data port, where there is one.
fn render_data(stats: &DataStats, mut add: impl FnMut(&str, &str, &str, u64)) {
    let seconds = |time: Option<Duration>| time.map_or(0, |time| time.as_secs());
    for (name, help, value) in [
        (
            "pop_data_connections",
            "Connections to the data port that are open.",
            stats.open,
        ),
        (
            "pop_data_sessions",
            "Sessions that send data now.",
            stats.running,
        ),
        (
            "pop_data_still_seconds",
            "How long the session that stands still the longest does so; 0 if none runs.",
            seconds(stats.still),
        ),
        (
            "pop_data_snapshots",
            "Snapshots that are kept for peers.",
            stats.pins,
        ),
        (
            "pop_data_oldest_snapshot_seconds",
            "Age of the oldest snapshot that is kept; 0 if none is.",
            seconds(stats.oldest_pin),
        ),
    ] {
        add(name, "gauge", help, value);
    }
    for (name, help, value) in [
        (
            "pop_data_connections_total",
            "Connections to the data port.",
            stats.connections,
        ),
        (
            "pop_data_connections_refused_total",
            "Connections that were turned away: nonsense, silence, no token, no room.",
            stats.refused,
        ),
        (
            "pop_data_snapshots_total",
            "Snapshots that were taken for peers.",
            stats.snapshots,
        ),
        (
            "pop_data_handovers_total",
            "Handovers that were begun.",
            stats.handovers,
        ),
        (
            "pop_data_sessions_total",
            "Sessions that were begun.",
            stats.begun,
        ),
        (
            "pop_data_sessions_installed_total",
            "Sessions whose receiver installed all rows.",
            stats.installed,
        ),
        (
            "pop_data_sessions_failed_total",
            "Sessions that ended before that.",
            stats.failed,
        ),
        (
            "pop_data_sent_rows_total",
            "Rows that sessions read to send.",
            stats.rows,
        ),
        (
            "pop_data_sent_bytes_total",
            "Bytes that sessions sent.",
            stats.bytes,
        ),
    ] {
        add(name, "counter", help, value);
    }
}

/// The same by a word: of those there is a fixed number, of which each is there once it
/// happened.
fn render_endings(text: &mut String, stats: &DataStats) {
    for (name, help, counts) in [
        (
            "pop_data_turned_away_total",
            "Connections that were turned away, by why.",
            &stats.turned_away,
        ),
        (
            "pop_data_sessions_ended_total",
            "Sessions that ended, by how.",
            &stats.ended,
        ),
        (
            "pop_data_snapshots_ended_total",
            "Snapshots that are kept no longer, by why.",
            &stats.snapshots_ended,
        ),
        (
            "pop_data_handovers_ended_total",
            "Handovers that ended, by how.",
            &stats.handovers_ended,
        ),
    ] {
        // Writing to a String can't fail.
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} counter\n");
        for (reason, count) in counts {
            let _ = writeln!(text, "{name}{{reason=\"{reason}\"}} {count}");
        }
    }
}
