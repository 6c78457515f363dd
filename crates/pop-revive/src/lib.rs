//! pop-revive
