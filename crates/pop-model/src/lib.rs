//! pop-model
