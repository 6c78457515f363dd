//! Which call fails, and how: from a script, or from a seed.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::odds::Odds;
use crate::{ErrorKind, testkit::Random};

/// The calls in which a fault can be injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Call {
    /// [`Store::write`](crate::Store::write).
    Write,
    /// [`Store::get`](crate::Store::get), and that of a snapshot.
    Get,
    /// [`Store::multi_get`](crate::Store::multi_get), one call whatever the number of keys.
    MultiGet,
    /// [`Store::scan`](crate::Store::scan), and that of a snapshot.
    Scan,
    /// [`Store::snapshot`](crate::Store::snapshot).
    Snapshot,
    /// [`Store::begin_replace`](crate::Store::begin_replace), and
    /// [`Store::resume_replace`](crate::Store::resume_replace).
    BeginReplace,
    /// [`Staging::load`](crate::Staging::load).
    Load,
    /// [`Staging::checkpoint`](crate::Staging::checkpoint).
    Checkpoint,
    /// [`Staging::publish`](crate::Staging::publish).
    Publish,
    /// [`Store::close`](crate::Store::close).
    Close,
    /// The drop of a [`Staging`](crate::Staging), also of one that is published, or of a
    /// [`Snapshot`](crate::Snapshot), after that of the one below. It can only panic, and only
    /// where that is armed: from a seed it gets nothing.
    Drop,
}

impl Call {
    /// Whether the call changes what a restart finds.
    pub(super) fn commits(self) -> bool {
        matches!(self, Self::Write | Self::Publish)
    }
}

/// Whether the call that a fault hits is done nevertheless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The call is done, and then the fault comes.
    Happened,
    /// The fault comes first; nothing is done.
    DidNotHappen,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Refused as `Unavailable`; nothing happens and the store goes on.
    Refuse,
    /// Refused as `NoSpace`; nothing happens and the store goes on.
    Full,
    /// Fails with an error of this kind; nothing happens and the store goes on, so that what
    /// a caller makes of each kind can be looked at by itself.
    Fail(ErrorKind),
    /// The engine fails and the caller is told `InDoubt`; then the store is poisoned.
    /// For [`Call::Write`] and [`Call::Publish`].
    InDoubt(Effect),
    /// The call is done this much later, on tokio's clock: a paused one makes it virtual.
    Delay(Duration),
    /// No answer until [`Faults::release`]. What is done only after the release is done
    /// then; a caller that is gone by then gets it not done at all.
    Hang(Effect),
    /// The call panics.
    Panic(Effect),
    /// Power cut: the first `keep` of the writes that are not synced survive. The write
    /// that it hits is the last of these if its effect happened, whatever durability it
    /// asked for. The store is poisoned; [`FaultStore::take_crashed`] has what survived.
    ///
    /// [`FaultStore::take_crashed`]: super::FaultStore::take_crashed
    Crash {
        /// Whether the call that is hit comes before the cut.
        effect: Effect,
        /// How many unsynced writes survive; `usize::MAX` for all.
        keep: usize,
    },
}

/// A fault that was injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Injected {
    /// Into which call.
    pub call: Call,
    /// Into which of that kind, from 1.
    pub nth: u64,
    /// What went wrong.
    pub fault: Fault,
}

/// The hand on the faults of one or several [`FaultStore`](super::FaultStore)s.
///
/// Clones share everything. It outlives its stores, so that counts and seed go on when a
/// store is opened again after a crash.
#[derive(Clone, Debug)]
pub struct Faults(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    // The number of calls that hang, and of releases so far.
    hung: watch::Sender<u64>,
    releases: watch::Sender<u64>,
}

#[derive(Debug)]
struct State {
    // `None` while disarmed; counting goes on.
    chance: Option<(Odds, Random)>,
    armed: BTreeMap<(Call, u64), Fault>,
    // Hits every call of its kind that nothing else hits.
    lasting: BTreeMap<Call, Fault>,
    calls: BTreeMap<Call, u64>,
    injected: Vec<Injected>,
}

impl Faults {
    /// Nothing goes wrong until something is armed.
    #[must_use]
    pub fn none() -> Self {
        let state = State {
            chance: None,
            armed: BTreeMap::new(),
            lasting: BTreeMap::new(),
            calls: BTreeMap::new(),
            injected: Vec::new(),
        };
        Self(Arc::new(Shared {
            state: Mutex::new(state),
            hung: watch::Sender::new(0),
            releases: watch::Sender::new(0),
        }))
    }

    /// Faults drawn from `seed`: the same calls in the same order get the same ones.
    #[must_use]
    pub fn seeded(seed: u64, odds: Odds) -> Self {
        let faults = Self::none();
        faults.0.state.lock().chance = Some((odds, Random::new(seed)));
        faults
    }

    /// Arms `fault` for the `nth` call of a kind from now on; 1 is the next one.
    ///
    /// # Panics
    ///
    /// If `nth` is zero, a call that commits nothing is to be in doubt, or a drop is to do
    /// anything but panic.
    pub fn arm(&self, call: Call, nth: u64, fault: Fault) -> &Self {
        assert!(nth > 0, "the first call is number 1");
        assert_possible(call, fault);
        let mut state = self.0.state.lock();
        let now = state.calls.get(&call).copied().unwrap_or(0);
        state.armed.insert((call, now + nth), fault);
        drop(state);
        self
    }

    /// Arms `fault` for all calls of a kind, until [`disarm`](Self::disarm): as a disk that is
    /// full fails every write.
    ///
    /// # Panics
    ///
    /// If a call that commits nothing is to be in doubt, or a drop is to do anything but panic.
    pub fn arm_all(&self, call: Call, fault: Fault) -> &Self {
        assert_possible(call, fault);
        self.0.state.lock().lasting.insert(call, fault);
        self
    }

    /// Takes back everything that is armed, and stops drawing from a seed.
    pub fn disarm(&self) {
        let mut state = self.0.state.lock();
        state.armed.clear();
        state.lasting.clear();
        state.chance = None;
    }

    /// Lets go of all calls that hang now.
    pub fn release(&self) {
        self.0.releases.send_modify(|releases| *releases += 1);
    }

    /// How many calls hang now.
    #[must_use]
    pub fn hung_count(&self) -> u64 {
        *self.0.hung.borrow()
    }

    /// Waits until at least so many calls hang.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn until_hung(&self, count: u64) {
        let mut hung = self.0.hung.subscribe();
        // It can't fail while `self` holds the sender.
        let _ = hung.wait_for(|now| *now >= count).await;
    }

    /// How many calls of a kind there were.
    #[must_use]
    pub fn call_count(&self, call: Call) -> u64 {
        self.0.state.lock().calls.get(&call).copied().unwrap_or(0)
    }

    /// What was injected so far, in order.
    #[must_use]
    pub fn injected(&self) -> Vec<Injected> {
        self.0.state.lock().injected.clone()
    }

    /// How many faults were injected so far.
    #[must_use]
    pub fn injected_count(&self) -> usize {
        self.0.state.lock().injected.len()
    }

    /// Counts one call and says what is to go wrong in it.
    pub(super) fn next(&self, call: Call) -> Option<Fault> {
        let mut state = self.0.state.lock();
        let nth = state.calls.entry(call).or_default();
        *nth += 1;
        let nth = *nth;
        let chance = state.chance.as_mut().filter(|_| call != Call::Drop);
        let drawn = chance.and_then(|(odds, random)| odds.draw(call, random));
        let armed = state.armed.remove(&(call, nth)).or(drawn);
        let fault = armed.or_else(|| state.lasting.get(&call).copied())?;
        state.injected.push(Injected { call, nth, fault });
        Some(fault)
    }

    /// Waits for the next release.
    pub(super) async fn hang(&self) {
        let mut releases = self.0.releases.subscribe();
        let _counted = Hung::new(&self.0.hung);
        // It can't fail while `self` holds the sender.
        let _ = releases.changed().await;
    }
}

fn assert_possible(call: Call, fault: Fault) {
    let in_doubt = matches!(fault, Fault::InDoubt(_) | Fault::Fail(ErrorKind::InDoubt));
    assert!(
        call.commits() || !in_doubt,
        "{call:?} commits nothing that could be in doubt"
    );
    assert!(
        call != Call::Drop || matches!(fault, Fault::Panic(_)),
        "a drop can only panic"
    );
}

/// Counts a hanging call, also if its caller goes away.
struct Hung<'a>(&'a watch::Sender<u64>);

impl<'a> Hung<'a> {
    fn new(hung: &'a watch::Sender<u64>) -> Self {
        hung.send_modify(|count| *count += 1);
        Self(hung)
    }
}

impl Drop for Hung<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}
