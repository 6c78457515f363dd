//! The source's side of a handover: the machine's actions, done on the broker that serves.

use kv_restore::Epoch;
use tokio::time::sleep;

use super::{
    DataService, Stream,
    hello::{self, Reference, Reply, Say, Why},
    hold,
    limits::{HELLO_BYTES_MAX, SILENCE_MAX},
    serve::{Listed, Refusal, failed, name, reply},
    stats::count,
};
use crate::{
    BrokerError,
    broker::Paused,
    handover::machine::{Source, SourceAction, SourceEvent},
    owner::{self, Receipt, Retired},
    space::SpaceMeta,
};

/// What a person is told of where the data went.
const TO_CHARS_MAX: usize = 200;

/// A handover that goes on. Dropped, the broker looks at its folder and serves if it may.
struct Handover {
    state: Source,
    paused: Paused,
    receipt: Receipt,
    to: String,
}

impl DataService {
    /// Gives everything to the peer, if it comes to have it; else it goes on serving.
    pub(super) async fn hand_over(
        &self,
        mut stream: Stream,
        to: &str,
    ) -> Result<(), (Stream, Refusal)> {
        count(&self.counters().handovers);
        let ended = |how| self.counters().handovers_ended.add(how);
        let (mut handover, offer, kept) = match self.begin(to).await {
            Ok(begun) => begun,
            Err(refusal) => {
                ended("refused");
                return Err((stream, refusal));
            }
        };
        let mut left = true;
        if reply(&mut stream, &Reply::Snapshot(Reference::of(&kept.at))).await {
            handover.hears(SourceEvent::Offered);
            let installed = installed(&mut stream, &kept);
            left = tokio::select! {
                installed = installed => !installed,
                // Nobody is served meanwhile.
                () = hold::stands_still(&offer, &kept) => true,
                () = sleep(self.age_max()) => true,
            };
        }
        if left {
            handover.hears(SourceEvent::Left);
            tracing::warn!(
                "the peer left, fetched nothing or took too long; the handover ends without one"
            );
            offer.withdraw();
            ended("left");
            return Ok(());
        }
        let answer = handover.retire(&kept).await;
        ended(match answer {
            Reply::Receipt(_) => "handed-over",
            _ => "in-doubt",
        });
        reply(&mut stream, &answer).await;
        Ok(())
    }

    async fn begin(&self, to: &str) -> Result<(Handover, kv_restore::Offer, Listed), Refusal> {
        let core = self.broker().core().map_err(failed)?;
        let receipt = Receipt(core.draw().to_be_bytes());
        let id = core.draw();
        let mut meta = SpaceMeta::copy(core.store.name(), core.clock.wall().as_unix_millis());
        meta.handover = Some(receipt.digest());
        drop(core);
        let slot = self.slot().await?;
        let (state, action) = Source::Serving.step(SourceEvent::Asked);
        debug_assert_eq!(action, Some(SourceAction::Flush), "what is asked is done");
        tracing::info!("everything is asked for: serving nobody until it is handed over");
        let paused = self.broker().pause().await.map_err(failed)?;
        let to: String = to
            .chars()
            .filter(|it| !it.is_control())
            .take(TO_CHARS_MAX)
            .collect();
        let handover = Handover {
            state,
            receipt,
            to,
            paused,
        };
        let epoch = Epoch(handover.paused.epoch().saturating_add(1));
        let store = handover.paused.store().map_err(failed)?;
        let at = name(id, epoch, &meta);
        let begun = owner::note_begun(store.as_ref(), at.id).await;
        begun.map_err(|error| failed(error.into()))?;
        let (offer, kept) = self.offer(at, store, slot).await?;
        Ok((handover, offer, kept))
    }

    /// Tells the receipt again, to who has what it is of.
    pub(super) async fn tell_receipt(
        &self,
        mut stream: Stream,
        snapshot: &str,
    ) -> Result<(), (Stream, Refusal)> {
        let mark = self.broker().handed_over();
        match mark.filter(|mark| Some(mark.snapshot) == hello::snapshot_id(snapshot)) {
            Some(mark) => {
                let (_, action) = Source::Retired.step(SourceEvent::Asks);
                debug_assert_eq!(action, Some(SourceAction::Tell), "its mark is there");
                let receipt = Receipt(mark.receipt).text();
                reply(&mut stream, &Reply::Receipt(receipt)).await;
                Ok(())
            }
            None => Err((stream, self.not_let_go_of(snapshot).await)),
        }
    }

    /// What is said of a handover that this broker did not come to the end of.
    async fn not_let_go_of(&self, snapshot: &str) -> Refusal {
        let begun = async {
            let core = self.broker().core()?;
            Ok(match hello::snapshot_id(snapshot) {
                Some(id) => owner::has_begun(core.store.as_ref(), id).await?,
                None => false,
            })
        };
        match begun.await {
            Ok(true) => {
                let text = "it took that handover back, and serves".to_owned();
                Refusal(Why::TakenBack, text)
            }
            Ok(false) => {
                let text = "it does not know of that handover, and serves".to_owned();
                Refusal(Why::Impossible, text)
            }
            // Another one goes on.
            Err(error @ BrokerError::Moving) => Refusal(Why::Busy, error.to_string()),
            Err(error) => failed(error),
        }
    }
}

impl Handover {
    fn hears(&mut self, event: SourceEvent) -> Option<SourceAction> {
        let (state, action) = self.state.step(event);
        self.state = state;
        action
    }

    /// Writes the mark, and only then has something to tell.
    async fn retire(mut self, kept: &Listed) -> Reply {
        let action = self.hears(SourceEvent::Installed);
        debug_assert_eq!(action, Some(SourceAction::Mark), "it was on offer");
        let mark = Retired {
            to: self.to,
            at_unix_ms: now_unix_ms(),
            epoch: kept.at.epoch.0,
            snapshot: kept.at.id,
            receipt: self.receipt.0,
        };
        match self.paused.retire(mark).await {
            Ok(()) => {
                let (_, action) = self.state.step(SourceEvent::Marked);
                debug_assert_eq!(action, Some(SourceAction::Tell), "it is synced");
                tracing::warn!(snapshot = %kept.at.id, "everything is handed over");
                Reply::Receipt(self.receipt.text())
            }
            Err(error) => {
                let (_, action) = self.state.step(SourceEvent::InDoubt);
                debug_assert_eq!(action, Some(SourceAction::Open), "the folder decides");
                tracing::error!(%error, "the mark of the handover failed; the folder decides");
                let text = format!("its mark failed, and what became of it is not known: {error}");
                let why = Why::Failed;
                Reply::Refused { why, text }
            }
        }
    }
}

/// Waits until the peer says that it has everything; false if it left.
async fn installed(stream: &mut Stream, kept: &Listed) -> bool {
    loop {
        let said = hello::within(SILENCE_MAX, hello::read(stream, HELLO_BYTES_MAX)).await;
        match said {
            Ok(Say::Alive) => {}
            Ok(Say::Retire { totals }) => return kept.is_installed(&totals).await,
            Ok(Say::Done) | Err(_) => return false,
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a moment that is told to people and decides nothing"
)]
fn now_unix_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |it| i64::try_from(it.as_millis()).unwrap_or(i64::MAX))
}
