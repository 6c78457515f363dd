//! The committer against an engine that does as it is told.

mod bulk;
mod fake;
mod golden;
mod group;
mod poison;
mod resume;
mod snapshot;
mod space;
