//! The official RocketMQ clients of five languages, unmodified, against our broker.
//!
//! The programs are under `xtask/interop/`, and what they check is in its README. Here: which of
//! them can run on this machine, a broker for each store, and the table of what came out.

mod broker;
mod language;
mod process;
mod stored;
mod verdict;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use broker::Broker;
use language::{LANGUAGES, Language, Places, ROOTS_VARIABLE, Trust};
use process::{run_limited, say, tail};
use verdict::{Row, Verdict, conclude, judge};
use xshell::Shell;

use crate::workspace;

/// The broker's limit: 4 MiB less room for what travels with a body.
const BODY_BYTES_MAX: u32 = 4 * 1024 * 1024 - 64 * 1024;
/// The shortest invisible duration that the protocol's reference server accepts.
const INVISIBLE_SECONDS: u32 = 10;
/// A program ends itself after this time.
const PROGRAM_SECONDS_MAX: u32 = 150;
/// A program that did not is ended from outside.
const PROGRAM_MAX: Duration = Duration::from_secs(180);
/// How many programs run at once; most of their time they wait for messages to come back.
const PROGRAMS_AT_ONCE: usize = 3;
const TAIL_LINES: usize = 30;

/// What to run.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Names of languages; empty means all.
    pub(crate) languages: Vec<String>,
    /// Stores to start a broker on, as `serve --store` names them.
    pub(crate) backends: Vec<String>,
    /// How many messages each client sends.
    pub(crate) messages: u32,
    /// The broker to test, already built.
    pub(crate) broker_binary: PathBuf,
    /// Whether the clients connect with TLS, on the port that also serves plain text.
    pub(crate) tls: bool,
}

/// Runs each chosen client against a broker on each chosen store, and prints a table.
///
/// # Errors
///
/// If a client or a broker failed. A client whose toolchain is absent is named as skipped, and is
/// no failure.
pub(crate) fn run(options: &Options) -> Result<()> {
    ensure!(
        cfg!(unix),
        "interop needs a Unix system: it stops the broker with a signal"
    );
    let output = output_folder()?;
    let logs = output.join("logs");
    fs::create_dir_all(&logs)?;
    let clients: Vec<Client> = choose(&options.languages)?
        .into_iter()
        .map(|language| Client::prepare(language, &output, options.tls))
        .collect();
    let shell = Shell::new()?;
    let mut rows = Vec::new();
    for backend in &options.backends {
        rows.extend(
            Round {
                options,
                backend,
                logs: &logs,
            }
            .run(&shell, &clients),
        );
    }
    conclude(&rows)
}

/// Built things go where Cargo's go; programs are started in other folders, so the path is whole.
fn output_folder() -> Result<PathBuf> {
    let root = workspace::root();
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let output = target.join("interop");
    fs::create_dir_all(&output)?;
    Ok(output.canonicalize()?)
}

fn choose(names: &[String]) -> Result<Vec<&'static Language>> {
    if names.is_empty() {
        return Ok(LANGUAGES.iter().collect());
    }
    let named = |name: &String| {
        let known = || {
            LANGUAGES
                .iter()
                .map(|language| language.name)
                .collect::<Vec<_>>()
                .join(", ")
        };
        LANGUAGES
            .iter()
            .find(|language| language.name == name)
            .with_context(|| format!("no client for {name:?}; there are {}", known()))
    };
    names.iter().map(named).collect()
}

/// A language on this machine.
struct Client {
    language: &'static Language,
    places: Places,
    /// Why it can't run, if it can't.
    hindrance: Option<Verdict>,
}

impl Client {
    fn prepare(language: &'static Language, output: &Path, tls: bool) -> Self {
        let places = Places::new(language, output);
        let hindrance = Self::skipped(language, tls).or_else(|| {
            say(&format!(
                "interop: preparing {} ({})",
                language.name, language.client
            ));
            language
                .prepare(&places)
                .err()
                .map(|error| Verdict::failed(&error))
        });
        Self {
            language,
            places,
            hindrance,
        }
    }

    fn skipped(language: &Language, tls: bool) -> Option<Verdict> {
        if let Some(tool) = language.absent_tool() {
            return Some(Verdict::Skipped(format!("no {tool} on this machine")));
        }
        match language.trust {
            Trust::NoTls if tls => Some(Verdict::Skipped("the client has no TLS".to_owned())),
            Trust::Roots if tls && env::var_os(ROOTS_VARIABLE).is_none() => Some(Verdict::Skipped(
                format!("{ROOTS_VARIABLE} names no certificate"),
            )),
            _ => None,
        }
    }
}

/// All clients against one broker.
struct Round<'a> {
    options: &'a Options,
    backend: &'a str,
    logs: &'a Path,
}

impl Round<'_> {
    fn run(&self, shell: &Shell, clients: &[Client]) -> Vec<Row> {
        let log = self.logs.join(format!("broker-{}.log", self.backend));
        let mut rows = Vec::new();
        let binary = &self.options.broker_binary;
        let stay = stored::configuration(self.backend);
        let config = format!("{stay}{}", ordered_groups(clients));
        match Broker::start(shell, binary, self.backend, &config, &log) {
            Ok(broker) => {
                rows.extend(self.run_clients(&broker, clients));
                let left = self.left(clients, &rows);
                if let Err(error) = stored::check(&broker, self.backend, left) {
                    rows.push(self.broker_row(&error));
                }
                if let Err(error) = broker.stop() {
                    rows.push(self.broker_row(&error));
                }
            }
            Err(error) => rows.push(self.broker_row(&error)),
        }
        self.explain(&rows, &log);
        rows
    }

    /// How many messages clients left alone until they came back.
    fn left(&self, clients: &[Client], rows: &[Row]) -> u64 {
        let has_left = |(row, client): &(&Row, &Client)| {
            client.language.leaves_half && matches!(row.verdict, Verdict::Passed(_))
        };
        let left = rows.iter().zip(clients).filter(has_left);
        left.map(|_| u64::from(self.options.messages / 2)).sum()
    }

    /// Prints what the table has no room for.
    fn explain(&self, rows: &[Row], log: &Path) {
        let failed: Vec<_> = rows.iter().filter(|row| row.problem().is_some()).collect();
        for row in &failed {
            let problem = row.problem().unwrap_or_default();
            say(&format!(
                "\n{} on {}: {problem}",
                row.language, self.backend
            ));
        }
        if !failed.is_empty() {
            say(&format!(
                "the broker, {}:\n{}",
                log.display(),
                tail(log, TAIL_LINES)
            ));
        }
    }

    fn broker_row(&self, error: &anyhow::Error) -> Row {
        let verdict = Verdict::failed(error);
        Row {
            language: "broker",
            client: "pop-broker",
            backend: self.backend.to_owned(),
            verdict,
        }
    }

    /// A few clients at once, the rest as soon as one is done; rows in the clients' order.
    fn run_clients(&self, broker: &Broker, clients: &[Client]) -> Vec<Row> {
        let waiting = Mutex::new(clients.iter().enumerate());
        let done = Mutex::new(Vec::new());
        let work = || {
            while let Some((order, client)) = locked(&waiting).next() {
                let verdict = self.verdict(broker, client);
                say(&format!(
                    "interop: {} on {}: {verdict}",
                    client.language.name, self.backend
                ));
                locked(&done).push((order, self.row(client, verdict)));
            }
        };
        thread::scope(|scope| {
            for _ in 0..PROGRAMS_AT_ONCE {
                scope.spawn(work);
            }
        });
        let mut rows = done.into_inner().expect("no holder of the lock panics");
        rows.sort_by_key(|(order, _)| *order);
        rows.into_iter().map(|(_, row)| row).collect()
    }

    fn row(&self, client: &Client, verdict: Verdict) -> Row {
        let Language { name, client, .. } = client.language;
        Row {
            language: name,
            client,
            backend: self.backend.to_owned(),
            verdict,
        }
    }

    fn verdict(&self, broker: &Broker, client: &Client) -> Verdict {
        if let Some(hindrance) = &client.hindrance {
            return hindrance.clone();
        }
        match self.round_trip(broker, client) {
            Ok(took) => Verdict::Passed(took),
            Err(error) => Verdict::failed(&error),
        }
    }

    fn round_trip(&self, broker: &Broker, client: &Client) -> Result<Duration> {
        let name = client.language.name;
        let log = self.logs.join(format!("{name}-{}.log", self.backend));
        let mut command = client.language.program(&client.places);
        command
            .args(["--endpoint", &broker.endpoint()])
            .args(["--topic", &format!("interop-{name}")])
            .args(["--group", &group(client.language)])
            .args(["--messages", &self.options.messages.to_string()])
            .args(["--max-body", &BODY_BYTES_MAX.to_string()])
            .args(["--invisible-seconds", &INVISIBLE_SECONDS.to_string()])
            .args(["--limit-seconds", &PROGRAM_SECONDS_MAX.to_string()]);
        if self.options.tls {
            command.arg("--tls");
        }
        let errors = log.with_extension("errors.log");
        let finished = run_limited(&mut command, &log, &errors, PROGRAM_MAX)?;
        judge(
            client.language,
            self.options.messages,
            finished.ended,
            &log,
            &errors,
        )?;
        Ok(finished.took)
    }
}

fn group(language: &Language) -> String {
    format!("interop-{}-group", language.name)
}

/// Groups that consume in order are not made on demand. Two attempts, so that what is never
/// consumed is a dead letter soon.
fn ordered_groups(clients: &[Client]) -> String {
    let table = |client: &Client| {
        let group = group(client.language);
        format!("[[groups]]\nname = \"{group}-in-order\"\nfifo = true\ndelivery-attempts-max = 2\n")
    };
    clients.iter().map(table).collect()
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no holder of the lock panics")
}
