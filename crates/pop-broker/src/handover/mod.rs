//! Giving a broker's content to another one, so that at every moment one of the two may
//! serve it or an operator can tell one of them to.
//!
//! The order is all there is to it:
//!
//! 1. the source serves no more and makes everything durable;
//! 2. the target fetches it and installs it, which it may not serve yet;
//! 3. the source writes that it is retired, synced;
//! 4. the source tells the receipt;
//! 5. the target writes that the content is its own, which it can't without the receipt.
//!
//! Before 3 the source may serve and the target may not, after 5 it is the other way round.
//! Between them neither does by itself: both folders are whole, the source knows the receipt,
//! and an operator who carries that over makes the target the owner. `machine` is that order
//! and nothing else.

pub(crate) mod machine;
pub mod operator;
