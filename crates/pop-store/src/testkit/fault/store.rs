//! The store that injects, and what it needs of the store below to cut its power.

use std::{
    fmt::Debug,
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;

use super::{
    script::{Call, Effect, Fault, Faults},
    views::{FaultSnapshot, FaultStaging},
};
use crate::{
    Capabilities, Durability, Entry, Error, ErrorKind, Keyspace, MemStore, Result, Resumed, Scan,
    Snapshot, Staging, Store, WriteBatch,
};

/// A store that can lose what a power cut would.
pub trait CrashableStore: Store + Sized {
    /// The store as it is after a power cut that kept the first `keep` unsynced writes, or
    /// all of them if there are fewer. Calls on the old handle are refused as `Poisoned`.
    fn crash(&self, keep: usize) -> Self;
}

impl CrashableStore for MemStore {
    fn crash(&self, keep: usize) -> Self {
        Self::crash(self, keep)
    }
}

/// A store that does what the one below does, except where [`Faults`] say otherwise.
///
/// Without a fault it keeps the contract as far as the store below does, and passes the
/// same kit. Clones share everything.
///
/// ```
/// use pop_store::{Durability, ErrorKind, Keyspace, MemStore, Store, WriteBatch};
/// use pop_store::testkit::{Call, Effect, Fault, FaultStore, Faults};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// const ROWS: Keyspace = Keyspace::new("rows");
/// let faults = Faults::none();
/// let store = FaultStore::crashable(MemStore::new(&[ROWS]), faults.clone());
///
/// // The next write is done and its answer lost; what was not synced survives the cut.
/// let effect = Effect::Happened;
/// faults.arm(Call::Write, 1, Fault::Crash { effect, keep: usize::MAX });
/// let mut batch = WriteBatch::new();
/// batch.put(ROWS, "k".into(), "v".into());
/// let error = store.write(batch, Durability::Synced).await.unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::InDoubt);
/// let error = store.get(ROWS, b"k").await.unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Poisoned);
///
/// let store = FaultStore::crashable(store.take_crashed().unwrap(), faults);
/// assert_eq!(store.get(ROWS, b"k").await.unwrap(), Some("v".into()));
/// # }
/// ```
#[derive(Debug)]
pub struct FaultStore<S> {
    pub(super) shared: Arc<Shared<S>>,
}

#[derive(Debug)]
pub(super) struct Shared<S> {
    pub(super) inner: S,
    pub(super) faults: Faults,
    poisoned: AtomicBool,
    // How to cut the power, for a store that can; and what survived.
    cut: Option<fn(&S, usize) -> S>,
    crashed: Mutex<Option<S>>,
}

impl<S> Clone for FaultStore<S> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<S: Store> FaultStore<S> {
    /// Faults over any store, without power cuts.
    pub fn new(inner: S, faults: Faults) -> Self {
        Self::with_cut(inner, faults, None)
    }

    fn with_cut(inner: S, faults: Faults, cut: Option<fn(&S, usize) -> S>) -> Self {
        Self {
            shared: Arc::new(Shared {
                inner,
                faults,
                poisoned: AtomicBool::new(false),
                cut,
                crashed: Mutex::new(None),
            }),
        }
    }

    /// The store below.
    #[must_use]
    pub fn inner(&self) -> &S {
        &self.shared.inner
    }

    /// What survived the power cut of a [`Fault::Crash`], once.
    #[must_use]
    pub fn take_crashed(&self) -> Option<S> {
        self.shared.crashed.lock().take()
    }
}

impl<S: CrashableStore> FaultStore<S> {
    /// Faults over a store whose power can be cut.
    pub fn crashable(inner: S, faults: Faults) -> Self {
        Self::with_cut(inner, faults, Some(S::crash))
    }

    /// Cuts the power now. Calls on this handle and its clones are refused from here on,
    /// and those that hang are let go.
    #[must_use]
    pub fn crash(&self, keep: usize) -> S {
        self.shared.cut(keep);
        self.take_crashed()
            .expect("a power cut leaves the store that survived it")
    }
}

impl<S: Store> Shared<S> {
    pub(super) fn error(&self, kind: ErrorKind, operation: &'static str) -> Error {
        Error::new(kind, self.inner.name(), operation).with_detail("injected by the fault store")
    }

    pub(super) fn poison(&self) {
        // Release and acquire, so that who sees the poison sees what was done before it.
        self.poisoned.store(true, Ordering::Release);
    }

    fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Acquire)
    }

    /// Poisons before the power goes, so that nobody is told of a write that is lost.
    ///
    /// # Panics
    ///
    /// If the store below can't lose power: build it with [`FaultStore::crashable`].
    pub(super) fn cut(&self, keep: usize) {
        let cut = self
            .cut
            .expect("a crash needs `FaultStore::crashable`: the store below must know how");
        let mut crashed = self.crashed.lock();
        self.poison();
        if crashed.is_none() {
            *crashed = Some(cut(&self.inner, keep));
        }
        drop(crashed);
        self.faults.release();
    }

    /// Does one call with the fault that is due in it, if any.
    ///
    /// `act` does the call; it is called once or, where the fault says so, not at all.
    pub(super) async fn call<T, F>(
        &self,
        call: Call,
        operation: &'static str,
        act: impl FnOnce(Syncing) -> F + Send,
    ) -> Result<T>
    where
        T: Send,
        F: Future<Output = Result<T>> + Send,
    {
        if self.is_poisoned() {
            return Err(self.error(ErrorKind::Poisoned, operation));
        }
        // What an action was refused by the store below is refused, whatever comes after.
        let answer = match self.faults.next(call) {
            None => act(Syncing::AsAsked).await?,
            Some(Fault::Refuse) => return Err(self.error(ErrorKind::Unavailable, operation)),
            Some(Fault::Full) => return Err(self.error(ErrorKind::NoSpace, operation)),
            Some(Fault::Fail(kind)) => return Err(self.error(kind, operation)),
            Some(Fault::InDoubt(effect)) => {
                if effect == Effect::Happened {
                    act(Syncing::AsAsked).await?;
                }
                self.poison();
                return Err(self.error(ErrorKind::InDoubt, operation));
            }
            Some(Fault::Delay(late)) => {
                tokio::time::sleep(late).await;
                act(Syncing::AsAsked).await?
            }
            Some(Fault::Hang(Effect::DidNotHappen)) => {
                self.faults.hang().await;
                act(Syncing::AsAsked).await?
            }
            Some(Fault::Hang(Effect::Happened)) => {
                let answer = act(Syncing::AsAsked).await?;
                self.faults.hang().await;
                answer
            }
            Some(Fault::Panic(effect)) => {
                if effect == Effect::Happened {
                    act(Syncing::AsAsked).await?;
                }
                panic!("{operation} panics: injected by the fault store");
            }
            Some(Fault::Crash { effect, keep }) => {
                if effect == Effect::Happened {
                    act(Syncing::Never).await?;
                }
                self.cut(keep);
                return Err(self.lost(call, operation));
            }
        };
        if self.is_poisoned() {
            // It went wrong around this call; nobody may build on the answer.
            return Err(self.lost(call, operation));
        }
        Ok(answer)
    }

    /// The answer of a call around which the store went away.
    fn lost(&self, call: Call, operation: &'static str) -> Error {
        let kind = if call.commits() {
            ErrorKind::InDoubt
        } else {
            ErrorKind::Poisoned
        };
        self.error(kind, operation)
    }
}

/// What a staging and a snapshot have of their store until they are dropped.
#[derive(Debug)]
pub(super) struct Held<S>(Arc<Shared<S>>);

impl<S> Deref for Held<S> {
    type Target = Shared<S>;

    fn deref(&self) -> &Shared<S> {
        &self.0
    }
}

impl<S> Drop for Held<S> {
    fn drop(&mut self) {
        if self.0.faults.next(Call::Drop).is_some() {
            panic!("a drop panics: injected by the fault store");
        }
    }
}

/// Whether an action may sync, which must wait where the power is about to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Syncing {
    AsAsked,
    Never,
}

#[async_trait]
impl<S: Store> Store for FaultStore<S> {
    fn name(&self) -> &'static str {
        self.shared.inner.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.shared.inner.capabilities()
    }

    fn keyspaces(&self) -> &[Keyspace] {
        self.shared.inner.keyspaces()
    }

    async fn write(&self, batch: WriteBatch, durability: Durability) -> Result<()> {
        let shared = &self.shared;
        let act = |sync| {
            let durability = match sync {
                Syncing::AsAsked => durability,
                Syncing::Never => Durability::Buffered,
            };
            shared.inner.write(batch, durability)
        };
        shared.call(Call::Write, "write", act).await
    }

    async fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>> {
        let shared = &self.shared;
        let act = |_| shared.inner.get(keyspace, key);
        shared.call(Call::Get, "get", act).await
    }

    async fn multi_get(&self, keyspace: Keyspace, keys: &[Bytes]) -> Result<Vec<Option<Bytes>>> {
        let shared = &self.shared;
        let act = |_| shared.inner.multi_get(keyspace, keys);
        shared.call(Call::MultiGet, "multi_get", act).await
    }

    async fn scan(&self, keyspace: Keyspace, scan: Scan) -> Result<Vec<Entry>> {
        let shared = &self.shared;
        let act = |_| shared.inner.scan(keyspace, scan);
        shared.call(Call::Scan, "scan", act).await
    }

    async fn snapshot(&self) -> Result<Arc<dyn Snapshot>> {
        let shared = &self.shared;
        let act = |_| shared.inner.snapshot();
        let inner = shared.call(Call::Snapshot, "snapshot", act).await?;
        Ok(Arc::new(FaultSnapshot {
            inner,
            shared: Held(Arc::clone(shared)),
        }))
    }

    async fn begin_replace(&self, keyspaces: &[Keyspace]) -> Result<Box<dyn Staging>> {
        let shared = &self.shared;
        let act = |_| shared.inner.begin_replace(keyspaces);
        let inner = shared
            .call(Call::BeginReplace, "begin_replace", act)
            .await?;
        Ok(Box::new(FaultStaging {
            inner,
            shared: Held(Arc::clone(shared)),
        }))
    }

    async fn resume_replace(&self, keyspaces: &[Keyspace], name: Bytes) -> Result<Resumed> {
        let shared = &self.shared;
        let act = |_| shared.inner.resume_replace(keyspaces, name);
        let Resumed { staging, point } = shared
            .call(Call::BeginReplace, "resume_replace", act)
            .await?;
        let staging = Box::new(FaultStaging {
            inner: staging,
            shared: Held(Arc::clone(shared)),
        });
        Ok(Resumed { staging, point })
    }

    async fn resumable(&self) -> Result<Option<Bytes>> {
        let act = |_| self.shared.inner.resumable();
        self.shared.call(Call::Get, "resumable", act).await
    }

    async fn close(&self) -> Result<()> {
        let shared = &self.shared;
        shared
            .call(Call::Close, "close", |_| shared.inner.close())
            .await
    }
}
