//! pop-store
