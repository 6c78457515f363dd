//! Talking to a serving broker through its admin port.

use std::time::Duration;

use clap::Args;
use serde::{Serialize, de::DeserializeOwned};
use ureq::{Agent, Body, http::Response};

use super::{Exit, Failure, say};
use crate::admin::api::Problem;

/// Longer than the broker waits for its store.
const ANSWER_MAX: Duration = Duration::from_secs(40);

/// Which broker to ask, and how to print what it says.
#[derive(Args, Debug)]
pub(super) struct Client {
    /// Admin address of the serving broker, HOST:PORT
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "POP_ADMIN",
        default_value = "127.0.0.1:8082"
    )]
    admin: String,

    /// Print JSON instead of a table
    #[arg(long)]
    pub(super) json: bool,
}

impl Client {
    pub(super) fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, String)],
    ) -> Result<T, Failure> {
        let mut request = agent().get(self.url(path));
        for (name, value) in query {
            request = request.query(name, value);
        }
        self.read(request.call())
    }

    pub(super) fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Failure> {
        self.read(agent().post(self.url(path)).send_json(body))
    }

    pub(super) fn delete<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, String)],
    ) -> Result<T, Failure> {
        let mut request = agent().delete(self.url(path));
        for (name, value) in query {
            request = request.query(name, value);
        }
        self.read(request.call())
    }

    /// Prints an answer: as it is, or as `text` puts it.
    pub(super) fn print<T: Serialize>(&self, answer: &T, text: impl FnOnce(&T) -> String) {
        if self.json {
            let json = serde_json::to_string_pretty(answer);
            say(&json.expect("what came as JSON goes as JSON"));
        } else {
            say(&text(answer));
        }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.admin)
    }

    fn read<T: DeserializeOwned>(
        &self,
        answer: Result<Response<Body>, ureq::Error>,
    ) -> Result<T, Failure> {
        let mut answer = answer.map_err(|error| {
            let problem = format!(
                "no broker answers at {}: {error}; start one with `pop-broker serve`, or name its admin address with --admin",
                self.admin
            );
            Failure::new(Exit::NoBroker, problem)
        })?;
        let status = answer.status();
        if status.is_success() {
            return answer.body_mut().read_json().map_err(|error| {
                let problem = format!(
                    "what answers at {} is not a broker of this version: {error}",
                    self.admin
                );
                Failure::new(Exit::NoBroker, problem)
            });
        }
        Err(match answer.body_mut().read_json::<Problem>() {
            Ok(problem) => Failure::new(Exit::Failed, problem.error),
            Err(_) => {
                let problem = format!("{} answers {status}: is it a broker?", self.admin);
                Failure::new(Exit::NoBroker, problem)
            }
        })
    }
}

fn agent() -> Agent {
    let config = Agent::config_builder()
        .timeout_global(Some(ANSWER_MAX))
        // A refusal has a body that says why.
        .http_status_as_error(false)
        // The broker is asked itself, whatever the environment says of the world outside.
        .proxy(None);
    config.build().into()
}
