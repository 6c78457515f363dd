//! The stream that a client keeps open, and the calls that say whether it lives.

use std::time::Duration;

use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use pop_proto::v2::{
    HeartbeatResponse, NotifyClientTerminationResponse, Settings, TelemetryCommand,
    telemetry_command::Command,
};
use tokio::time::{Instant, sleep_until};
use tonic::Streaming;

use super::{
    Rpc,
    headers::{Caller, Language},
    push,
    settings::Merge,
    status,
    status::Refusal,
};

/// When the Node.js client gets its settings once more: it loses those that arrive while
/// it still asks for routes, and then waits for the next ones without a limit.
const SECOND_COPY_AFTER: Duration = Duration::from_secs(1);

type Item = Result<TelemetryCommand, tonic::Status>;

pub(super) async fn heartbeat(rpc: &Rpc, caller: &Caller) -> Result<HeartbeatResponse, Refusal> {
    rpc.push.seen(&caller.id);
    Ok(HeartbeatResponse {
        status: Some(status::ok()),
    })
}

pub(super) async fn terminated(
    rpc: &Rpc,
    caller: &Caller,
) -> Result<NotifyClientTerminationResponse, Refusal> {
    rpc.push.terminated(&caller.id);
    Ok(NotifyClientTerminationResponse {
        status: Some(status::ok()),
    })
}

/// Answers every settings command at once; other commands ask for nothing.
pub(super) fn answers(
    rpc: &Rpc,
    caller: Caller,
    commands: Streaming<TelemetryCommand>,
) -> BoxStream<'static, Item> {
    let session = Session {
        merge: Merge {
            broker: rpc.broker.clone(),
            long_poll_max: rpc.options.long_poll_max,
        },
        commands,
        second_copy: None,
        ended: false,
        _there: rpc.push.session(&caller.id),
        caller,
    };
    stream::unfold(session, |mut session| async move {
        let item = session.next().await?;
        Some((item, session))
    })
    .boxed()
}

struct Session {
    merge: Merge,
    caller: Caller,
    commands: Streaming<TelemetryCommand>,
    second_copy: Option<(Instant, Settings)>,
    ended: bool,
    /// As long as the stream is open, the client is there.
    _there: push::Session,
}

impl Session {
    async fn next(&mut self) -> Option<Item> {
        while !self.ended {
            let due = self.second_copy.as_ref().map(|(due, _)| *due);
            let command = tokio::select! {
                () = self.caller.closing.cancelled() => return None,
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    let (_, settings) = self.second_copy.take()?;
                    return Some(Ok(answer(settings)));
                }
                command = self.commands.message() => command,
            };
            // The client closed its half, or is gone.
            let command = command.ok().flatten()?;
            if let Some(Command::Settings(settings)) = command.command {
                return Some(self.settings(settings));
            }
        }
        None
    }

    fn settings(&mut self, settings: Settings) -> Item {
        let merged = self.merge.settings(settings, &self.caller);
        // A stream has no status of its own, so it ends with an error.
        self.ended = merged.is_err();
        let merged = merged.map_err(Refusal::error)?;
        if self.caller.language == Language::Node {
            self.second_copy = Some((Instant::now() + SECOND_COPY_AFTER, merged.clone()));
        }
        Ok(answer(merged))
    }
}

/// With a status: one client ignores settings without.
fn answer(settings: Settings) -> TelemetryCommand {
    TelemetryCommand {
        status: Some(status::ok()),
        command: Some(Command::Settings(settings)),
    }
}
