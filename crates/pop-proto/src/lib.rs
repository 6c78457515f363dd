//! pop-proto
