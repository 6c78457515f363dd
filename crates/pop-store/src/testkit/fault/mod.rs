//! A store that misbehaves when told to, so that what stands on a store can be shown to
//! lose nothing.

mod odds;
mod script;
mod store;
mod views;

#[cfg(test)]
mod tests;

pub use odds::Odds;
pub use script::{Call, Effect, Fault, Faults, Injected};
pub use store::{CrashableStore, FaultStore};
