//! pop-cache
