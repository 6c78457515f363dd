//! The settings that a server runs with: every choice made, and checked against the others.

use std::{
    env,
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroU32,
    path::PathBuf,
    time::Duration,
};

use pop_broker::{
    BrokerOptions, CatalogOptions, GroupSpec, TopicSpec, listener::TlsChoice, stores::Backend,
};
use pop_cache::CacheOptions;
use pop_model::StartPosition;
use pop_store::Durability;
use tracing_subscriber::EnvFilter;

pub(crate) use super::choices::LogFormat;
use super::{
    choices::{Answer, Choices, Start, Tls},
    data_port::DataPortSettings,
};
use crate::cli::{Exit, Failure};

const PORT: u16 = 8081;
const ADMIN_PORT: u16 = 8082;
/// Long enough for a consumer that is down over a long weekend.
const RETENTION: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// The engines tell of each of their files.
const LOG: &str = "info,fjall=warn,lsm_tree=warn,sled=warn";

/// What a server runs with.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) store: Backend,
    /// Empty for a store that keeps nothing.
    pub(crate) data: PathBuf,
    pub(crate) listen: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) tls: TlsChoice,
    /// None if nothing is given out.
    pub(crate) data_port: Option<DataPortSettings>,
    pub(crate) send_durability: Durability,
    pub(crate) ack_durability: Durability,
    pub(crate) catalog: CatalogOptions,
    pub(crate) topics: Vec<TopicSpec>,
    pub(crate) groups: Vec<GroupSpec>,
    pub(crate) retention: Option<Duration>,
    pub(crate) cache: CacheOptions,
    pub(crate) log: EnvFilter,
    pub(crate) log_format: LogFormat,
}

impl Settings {
    /// Fills what nobody chose with the default, and refuses choices that contradict.
    pub(crate) fn decide(choices: Choices) -> Result<Self, Failure> {
        let store = choices.store.unwrap_or(Backend::Fjall);
        let catalog = catalog(&choices);
        let topics = choices.topics.iter().map(|topic| TopicSpec {
            name: topic.name(),
            queues: topic.queues.unwrap_or(catalog.queues),
        });
        let groups = choices.groups.iter().map(|group| GroupSpec {
            name: group.name(),
            policy: group.policy(),
            start: group.start.map_or(catalog.start, StartPosition::from),
            fifo: group.fifo,
        });
        Ok(Self {
            store,
            data: match &choices.data {
                _ if !store.has_folder() => PathBuf::new(),
                Some(folder) => folder.clone(),
                None => default_folder()?,
            },
            listen: choices.listen.unwrap_or(here(PORT)),
            admin: choices.admin.unwrap_or(here(ADMIN_PORT)),
            tls: tls(&choices)?,
            data_port: DataPortSettings::decide(&choices)?,
            send_durability: choices.durability.unwrap_or(Answer::Sync).into(),
            ack_durability: choices.ack_durability.unwrap_or(Answer::Async).into(),
            topics: topics.collect(),
            groups: groups.collect(),
            retention: choices.retention.map_or(Some(RETENTION), |age| age.0),
            cache: cache(&choices),
            log: log_filter(choices.log.as_deref().unwrap_or(LOG))?,
            log_format: choices.log_format.unwrap_or(LogFormat::Text),
            catalog,
        })
    }

    /// What the broker is told.
    pub(crate) fn broker_options(&self, entropy: pop_broker::Entropy) -> BrokerOptions {
        let mut options = BrokerOptions::new(entropy);
        options.send_durability = self.send_durability;
        options.ack_durability = self.ack_durability;
        options.catalog = self.catalog.clone();
        options.retention = self.retention;
        options.cache = self.cache.clone();
        options
    }
}

/// This machine alone: whoever can connect can read and write, and only the operator knows
/// who that may be.
fn here(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

fn default_folder() -> Result<PathBuf, Failure> {
    let variable = |name| env::var_os(name).filter(|value| !value.is_empty());
    let data = variable("XDG_DATA_HOME").map(PathBuf::from);
    let home = || variable("HOME").map(|home| PathBuf::from(home).join(".local/share"));
    let data = data.or_else(home).map(|data| data.join("pop-broker"));
    data.ok_or_else(|| {
        let problem =
            "no data folder: give --data DIR, since neither XDG_DATA_HOME nor HOME is set";
        Failure::new(Exit::Usage, problem)
    })
}

fn catalog(choices: &Choices) -> CatalogOptions {
    let mut catalog = CatalogOptions::default();
    catalog.auto_create_topics = choices.auto_create_topics.unwrap_or(true);
    catalog.auto_create_groups = choices.auto_create_groups.unwrap_or(true);
    catalog.queues = choices.queues.unwrap_or(catalog.queues);
    catalog.start = choices.new_group_start.unwrap_or(Start::Earliest).into();
    catalog
}

fn cache(choices: &Choices) -> CacheOptions {
    let mut cache = CacheOptions::default();
    cache.stay = choices.lease_stay.map_or(cache.stay, |stay| stay.0);
    let max = |choice: Option<NonZeroU32>| choice.map(|max| u64::from(max.get()));
    cache.leases_max = choices
        .leases_max
        .and_then(|max| usize::try_from(max.get()).ok())
        .unwrap_or(cache.leases_max);
    cache.in_flight_per_queue_max =
        max(choices.queue_in_flight_max).unwrap_or(cache.in_flight_per_queue_max);
    cache.in_flight_per_group_max =
        max(choices.group_in_flight_max).unwrap_or(cache.in_flight_per_group_max);
    cache
}

fn tls(choices: &Choices) -> Result<TlsChoice, Failure> {
    let files = (choices.tls_certificate.clone(), choices.tls_key.clone());
    match (choices.tls.unwrap_or(Tls::SelfSigned), files) {
        (Tls::SelfSigned, (None, None)) => Ok(TlsChoice::SelfSigned),
        (Tls::Off, (None, None)) => Ok(TlsChoice::Off),
        (Tls::Pem, (Some(certificate), Some(key))) => Ok(TlsChoice::Pem { certificate, key }),
        (Tls::Pem, _) => Err(Failure::new(
            Exit::Usage,
            "tls pem needs both files: give --tls-certificate FILE and --tls-key FILE",
        )),
        (Tls::SelfSigned | Tls::Off, _) => Err(Failure::new(
            Exit::Usage,
            "a certificate or key is given but would not be used: add --tls pem, or leave it out",
        )),
    }
}

pub(crate) fn log_filter(text: &str) -> Result<EnvFilter, Failure> {
    EnvFilter::try_new(text).map_err(|error| {
        let problem =
            format!("log filter {text:?}: {error}; for example info or warn,pop_broker=debug");
        Failure::new(Exit::Usage, problem)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_that_comes_first_wins() {
        let flags = Choices {
            queues: Some(1),
            ..Choices::default()
        };
        let file = Choices {
            queues: Some(2),
            store: Some(Backend::Memory),
            ..Choices::default()
        };
        let settings = Settings::decide(flags.or(file)).unwrap();
        assert_eq!(settings.catalog.queues, 1);
        assert_eq!(settings.store, Backend::Memory);
        assert_eq!(settings.listen, here(8081));
    }

    #[test]
    fn nobody_chose_means_safe() {
        let choices = Choices {
            store: Some(Backend::Memory),
            ..Choices::default()
        };
        let settings = Settings::decide(choices).unwrap();
        assert!(settings.listen.ip().is_loopback());
        assert!(settings.admin.ip().is_loopback());
        assert_eq!(settings.send_durability, Durability::Synced);
        assert_eq!(settings.retention, Some(7 * Duration::from_secs(86_400)));
    }

    #[test]
    fn the_bounds_of_deliveries_reach_the_broker() {
        let file = r#"
            store = "memory"
            lease-stay = "1m"
            leases-max = 1000
            queue-in-flight-max = 20
            group-in-flight-max = 30
        "#;
        let settings = Settings::decide(toml::from_str(file).unwrap()).unwrap();
        let cache = settings.broker_options(std::sync::Arc::new(|_| ())).cache;
        // Mutant: the options of the broker keep their own cache, and every bound is the
        // default.
        assert_eq!(cache.stay, Duration::from_secs(60));
        assert_eq!(cache.leases_max, 1_000);
        assert_eq!(cache.in_flight_per_queue_max, 20);
        assert_eq!(cache.in_flight_per_group_max, 30);
        for wrong in ["leases-max = 0", "lease-stay = \"off\"", "lease-stay = 10"] {
            assert!(toml::from_str::<Choices>(wrong).is_err(), "{wrong}");
        }
    }

    #[track_caller]
    fn check_refused(choices: Choices, problem: &str) {
        let choices = Choices {
            store: Some(Backend::Memory),
            ..choices
        };
        let error = Settings::decide(choices).unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
    }

    #[test]
    fn choices_that_contradict_are_refused() {
        check_refused(
            Choices {
                tls: Some(Tls::Pem),
                tls_key: Some("key.pem".into()),
                ..Choices::default()
            },
            "--tls-certificate",
        );
        check_refused(
            Choices {
                tls_key: Some("key.pem".into()),
                ..Choices::default()
            },
            "--tls pem",
        );
        check_refused(
            Choices {
                log: Some("=what=".into()),
                ..Choices::default()
            },
            "=what=",
        );
    }
}
