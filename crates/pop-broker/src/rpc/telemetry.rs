//! Telemetry: each settings message of a client is answered at once, as long as it lives.

use std::time::Duration;

use futures::{SinkExt, channel::mpsc};
use pop_proto::v2::{Settings, TelemetryCommand, telemetry_command::Command};
use tonic::{Status, Streaming};

use crate::Health;

use super::{
    Frames, Messaging,
    headers::{Caller, Language},
    status::{self, Refusal},
};

/// Node.js begins to wait for its settings only after its last route, and for ever; a
/// second copy ends that wait.
const SECOND_COPY_AFTER: Duration = Duration::from_secs(1);

type Sender = mpsc::Sender<Result<TelemetryCommand, Status>>;

impl Messaging {
    /// Follows the stream of one client. The answer's headers go out before the first
    /// message comes in: the Rust client waits for them.
    pub(super) fn follow(
        &self,
        caller: Caller,
        commands: Streaming<TelemetryCommand>,
    ) -> Frames<TelemetryCommand> {
        let (sender, receiver) = mpsc::channel(8);
        let messaging = self.shared();
        tokio::spawn(async move { messaging.answer_all(&caller, commands, sender).await });
        Box::pin(receiver)
    }

    fn shared(&self) -> Self {
        Self {
            broker: self.broker.clone(),
            options: self.options.clone(),
            held: self.held.clone(),
        }
    }

    /// Ends with the client's stream, or when nobody reads the answers any more.
    async fn answer_all(
        &self,
        caller: &Caller,
        mut commands: Streaming<TelemetryCommand>,
        mut sender: Sender,
    ) {
        let mut health = self.broker.health();
        // A stream that outlived the broker would hold up its shutdown.
        let closed = health.wait_for(|health| *health == Health::Closed);
        let mut closed = std::pin::pin!(closed);
        loop {
            let command = tokio::select! {
                command = commands.message() => command,
                _ = &mut closed => return,
            };
            let Ok(Some(command)) = command else {
                return;
            };
            // Clients also send what was never asked for; nothing follows from it.
            let Some(Command::Settings(settings)) = command.command else {
                continue;
            };
            let answer = self.answer(caller, settings);
            let again = answer.as_ref().ok().cloned();
            if sender.send(answer).await.is_err() {
                return;
            }
            match again {
                Some(again) if caller.language == Language::Node => {
                    let mut sender = sender.clone();
                    tokio::spawn(async move {
                        tokio::time::sleep(SECOND_COPY_AFTER).await;
                        // The client may be gone by now.
                        drop(sender.send(Ok(again)).await);
                    });
                }
                Some(_) => {}
                // The stream ended with an error.
                None => return,
            }
        }
    }

    fn answer(&self, caller: &Caller, settings: Settings) -> Result<TelemetryCommand, Status> {
        let settings = self
            .merged(caller, settings)
            .map_err(|error| Status::invalid_argument(Refusal::from(error).text()))?;
        Ok(TelemetryCommand {
            // Python ignores settings without a status.
            status: Some(status::ok()),
            command: Some(Command::Settings(settings)),
        })
    }
}
