//! The durable revive loop: scan, decide, commit; each due delivery on its own.

use std::{
    any::Any,
    collections::HashSet,
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::{FutureExt, StreamExt, stream};
use pop_model::{
    CheckpointRescheduling, Clock, DueKey, LeaseTime, MetaKey, QuarantineKey, QuarantineRecord, REVIVE_FAILURES_MAX,
    ShardId, revive_failure_backoff,
};
use pop_store::{
    Durability, Entry, ErrorKind, Outcome, Result, Scan, Store, StoreExt, WriteBatch,
    table::{DUE, LEASE, META, QUARANTINE},
};
use tracing::{debug, error, warn};

use crate::{Classified, Due, DueSchedule, Revival, RevivalKind, RetrySink, classify};
