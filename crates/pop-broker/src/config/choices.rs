//! What a user may choose, by flag, environment and file alike.

use std::{fmt::Display, net::SocketAddr, num::NonZeroU32, path::PathBuf, str::FromStr};

use clap::{Args, ValueEnum};
use pop_broker::{data::ByteRate, stores::Backend};
use pop_model::{StartPosition, limits};
use pop_store::Durability;
use serde::{Deserialize, Deserializer, de};

use super::{
    age::{Age, Span},
    file::{GroupChoice, TopicChoice},
};

/// Choices of one source; what it does not choose is `None`.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Choices {
    /// Where messages are kept: memory, fjall, rocksdb or sled [default: fjall]
    ///
    /// memory keeps nothing; sled is not for production; rocksdb and sled must be compiled
    /// in (`--features rocksdb,sled`). A folder belongs to the store that made it.
    #[arg(long, value_name = "STORE", env = "POP_STORE")]
    #[serde(default, deserialize_with = "parsed")]
    pub(crate) store: Option<Backend>,

    /// Data folder, made if it is not there [default: $XDG_DATA_HOME/pop-broker, else
    /// ~/.local/share/pop-broker]
    ///
    /// One process at a time has it.
    #[arg(long, value_name = "DIR", env = "POP_DATA")]
    pub(crate) data: Option<PathBuf>,

    /// Where clients connect, gRPC [default: 127.0.0.1:8081]
    ///
    /// The default serves this machine alone, because whoever can connect can read and
    /// write: there are no passwords yet. Give 0.0.0.0:8081 to serve others. Port 0 takes
    /// a free one, and the `ready` line names it.
    #[arg(long, value_name = "ADDRESS", env = "POP_LISTEN")]
    pub(crate) listen: Option<SocketAddr>,

    /// Where `pop-broker topic`, `group` and `quarantine`, health checks and Prometheus
    /// connect, HTTP [default: 127.0.0.1:8082]
    #[arg(long, value_name = "ADDRESS", env = "POP_ADMIN")]
    pub(crate) admin: Option<SocketAddr>,

    /// Whether clients may use TLS: self-signed, pem or off [default: self-signed]
    ///
    /// Plain text is served on the same port in every case. self-signed makes a
    /// certificate at each start, enough for clients that don't verify it (those of
    /// several languages use TLS unless told otherwise); pem takes yours.
    #[arg(long, value_name = "TLS", env = "POP_TLS")]
    pub(crate) tls: Option<Tls>,

    /// Certificate chain in PEM, for --tls pem
    #[arg(long, value_name = "FILE", env = "POP_TLS_CERTIFICATE")]
    pub(crate) tls_certificate: Option<PathBuf>,

    /// Private key in PEM, for --tls pem
    #[arg(long, value_name = "FILE", env = "POP_TLS_KEY")]
    pub(crate) tls_key: Option<PathBuf>,

    /// When a send is answered: sync or async [default: sync]
    ///
    /// sync: once the message survives a power cut. async: once it is taken; a power cut
    /// loses what was sent in the last 50 ms.
    #[arg(long, value_name = "WHEN", env = "POP_DURABILITY")]
    pub(crate) durability: Option<Answer>,

    /// When an acknowledgement is answered: sync or async [default: async]
    ///
    /// async: once it is taken; after a power cut the messages acknowledged in the last
    /// 50 ms may be delivered again. sync: once it survives a power cut.
    #[arg(long, value_name = "WHEN", env = "POP_ACK_DURABILITY")]
    pub(crate) ack_durability: Option<Answer>,

    /// Make a topic when a client asks for it [default: true]
    #[arg(long, value_name = "BOOL", env = "POP_AUTO_CREATE_TOPICS",
          num_args = 0..=1, default_missing_value = "true")]
    pub(crate) auto_create_topics: Option<bool>,

    /// Make a group at its first receive [default: true]
    #[arg(long, value_name = "BOOL", env = "POP_AUTO_CREATE_GROUPS",
          num_args = 0..=1, default_missing_value = "true")]
    pub(crate) auto_create_groups: Option<bool>,

    /// Queues of a new topic, 1 to 1024 [default: 4]
    #[arg(long, value_name = "COUNT", env = "POP_QUEUES",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(limits::QUEUES_MAX)))]
    #[serde(default, deserialize_with = "queues")]
    pub(crate) queues: Option<u32>,

    /// Where a group starts that is made on demand: earliest or latest [default: earliest]
    ///
    /// earliest: at the first message that is still there. latest: behind the last one.
    #[arg(long, value_name = "WHERE", env = "POP_NEW_GROUP_START")]
    pub(crate) new_group_start: Option<Start>,

    /// How long messages are kept, such as 7d, 12h or 30m; off: for ever [default: 7d]
    ///
    /// Older ones end for every group, acknowledged or not, with a count and a line in the
    /// log; one that a consumer has, or that is to be delivered again, is kept for it.
    #[arg(long, value_name = "AGE", env = "POP_RETENTION")]
    #[serde(default, deserialize_with = "parsed")]
    pub(crate) retention: Option<Age>,

    /// How long a delivery that nobody acknowledges is kept in memory alone, such as 10s
    /// [default: 10s]
    ///
    /// A crash ends the deliveries that are in memory alone, and hands their messages out
    /// again; one that is older has a record of its own. Less time means fewer repeats after
    /// a crash, and more writes.
    #[arg(long, value_name = "TIME", env = "POP_LEASE_STAY")]
    #[serde(default, deserialize_with = "parsed")]
    pub(crate) lease_stay: Option<Span>,

    /// The most deliveries in memory, some 50 bytes each; beyond them the oldest get their
    /// record earlier [default: 1000000]
    #[arg(long, value_name = "COUNT", env = "POP_LEASES_MAX")]
    pub(crate) leases_max: Option<NonZeroU32>,

    /// The most deliveries of one queue to one group that are out; beyond them consumers
    /// wait until some are acknowledged [default: 1000000]
    #[arg(long, value_name = "COUNT", env = "POP_QUEUE_IN_FLIGHT_MAX")]
    pub(crate) queue_in_flight_max: Option<NonZeroU32>,

    /// The same, of all queues to one group together [default: 4000000]
    #[arg(long, value_name = "COUNT", env = "POP_GROUP_IN_FLIGHT_MAX")]
    pub(crate) group_in_flight_max: Option<NonZeroU32>,

    /// Where `pop-broker bootstrap` and `backup` fetch what this broker has; off if absent
    ///
    /// Whoever may connect gets every message. On another address than 127.0.0.1 or ::1 a
    /// token or a certificate of the client is demanded. Port 0 takes a free one, and the
    /// `ready` line names it.
    #[arg(long, value_name = "ADDRESS", env = "POP_DATA_LISTEN")]
    pub(crate) data_listen: Option<SocketAddr>,

    /// File with the token that peers of --data-listen must give: one line of at least 16
    /// characters
    #[arg(long, value_name = "FILE", env = "POP_DATA_TOKEN_FILE")]
    pub(crate) data_token_file: Option<PathBuf>,

    /// Certificate chain of --data-listen in PEM; with it the port speaks TLS alone
    #[arg(long, value_name = "FILE", env = "POP_DATA_TLS_CERTIFICATE")]
    pub(crate) data_tls_certificate: Option<PathBuf>,

    /// Private key of --data-listen in PEM
    #[arg(long, value_name = "FILE", env = "POP_DATA_TLS_KEY")]
    pub(crate) data_tls_key: Option<PathBuf>,

    /// Certificates in PEM that must have signed those of the peers of --data-listen
    #[arg(long, value_name = "FILE", env = "POP_DATA_TLS_CLIENT_CA")]
    pub(crate) data_tls_client_ca: Option<PathBuf>,

    /// What --data-listen sends in a second, to all peers together, such as 64M; off: no
    /// limit [default: 64M]
    ///
    /// `pop-broker data rate` changes it while the broker runs.
    #[arg(long, value_name = "RATE", env = "POP_DATA_RATE")]
    #[serde(default, deserialize_with = "parsed")]
    pub(crate) data_rate: Option<ByteRate>,

    /// Snapshots that are kept for peers at once; more are refused [default: 2]
    #[arg(long, value_name = "COUNT", env = "POP_DATA_SNAPSHOTS_MAX")]
    pub(crate) data_snapshots_max: Option<NonZeroU32>,

    /// How long a snapshot is kept at most, such as 6h [default: 6h]
    ///
    /// What is written meanwhile takes room beside it.
    #[arg(long, value_name = "TIME", env = "POP_DATA_SNAPSHOT_AGE_MAX")]
    #[serde(default, deserialize_with = "parsed")]
    pub(crate) data_snapshot_age_max: Option<Span>,

    /// What is logged to stderr: error, warn, info, debug or trace, or per module, such as
    /// warn,pop_broker=debug [default: info, of the engines warn]
    #[arg(long, value_name = "FILTER", env = "POP_LOG")]
    pub(crate) log: Option<String>,

    /// How it is logged: text or json [default: text]
    #[arg(long, value_name = "FORMAT", env = "POP_LOG_FORMAT")]
    pub(crate) log_format: Option<LogFormat>,

    #[arg(skip)]
    #[serde(default)]
    pub(crate) topics: Vec<TopicChoice>,

    #[arg(skip)]
    #[serde(default)]
    pub(crate) groups: Vec<GroupChoice>,
}

/// Whether clients may use TLS.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Tls {
    /// With a certificate made at the start.
    SelfSigned,
    /// With the certificate of the operator.
    Pem,
    /// Plain text alone.
    Off,
}

/// When a request is answered.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Answer {
    /// Once it survives a power cut.
    Sync,
    /// Once it is taken.
    Async,
}

/// Where a group starts.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Start {
    /// At the first message that is still there.
    Earliest,
    /// Behind the last one.
    Latest,
}

/// How the log looks.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum LogFormat {
    /// For a person.
    Text,
    /// For a program.
    Json,
}

impl From<Answer> for Durability {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::Sync => Self::Synced,
            Answer::Async => Self::Buffered,
        }
    }
}

impl From<Start> for StartPosition {
    fn from(start: Start) -> Self {
        match start {
            Start::Earliest => Self::Earliest,
            Start::Latest => Self::Latest,
        }
    }
}

impl Choices {
    /// These choices, and the `other` ones where these are silent.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            store: self.store.or(other.store),
            data: self.data.or(other.data),
            listen: self.listen.or(other.listen),
            admin: self.admin.or(other.admin),
            tls: self.tls.or(other.tls),
            tls_certificate: self.tls_certificate.or(other.tls_certificate),
            tls_key: self.tls_key.or(other.tls_key),
            durability: self.durability.or(other.durability),
            ack_durability: self.ack_durability.or(other.ack_durability),
            auto_create_topics: self.auto_create_topics.or(other.auto_create_topics),
            auto_create_groups: self.auto_create_groups.or(other.auto_create_groups),
            queues: self.queues.or(other.queues),
            new_group_start: self.new_group_start.or(other.new_group_start),
            retention: self.retention.or(other.retention),
            lease_stay: self.lease_stay.or(other.lease_stay),
            leases_max: self.leases_max.or(other.leases_max),
            queue_in_flight_max: self.queue_in_flight_max.or(other.queue_in_flight_max),
            group_in_flight_max: self.group_in_flight_max.or(other.group_in_flight_max),
            data_listen: self.data_listen.or(other.data_listen),
            data_token_file: self.data_token_file.or(other.data_token_file),
            data_tls_certificate: self.data_tls_certificate.or(other.data_tls_certificate),
            data_tls_key: self.data_tls_key.or(other.data_tls_key),
            data_tls_client_ca: self.data_tls_client_ca.or(other.data_tls_client_ca),
            data_rate: self.data_rate.or(other.data_rate),
            data_snapshots_max: self.data_snapshots_max.or(other.data_snapshots_max),
            data_snapshot_age_max: self.data_snapshot_age_max.or(other.data_snapshot_age_max),
            log: self.log.or(other.log),
            log_format: self.log_format.or(other.log_format),
            topics: [self.topics, other.topics].concat(),
            groups: [self.groups, other.groups].concat(),
        }
    }
}

/// What a flag reads from its text.
fn parsed<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: Display>,
{
    let text = String::deserialize(deserializer)?;
    text.parse().map(Some).map_err(de::Error::custom)
}

/// A number of queues, checked where the file's line is still known.
pub(super) fn queues<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    let queues = u32::deserialize(deserializer)?;
    if (1..=limits::QUEUES_MAX).contains(&queues) {
        return Ok(Some(queues));
    }
    let problem = pop_broker::BrokerError::QueueCount { queues };
    Err(de::Error::custom(problem))
}
