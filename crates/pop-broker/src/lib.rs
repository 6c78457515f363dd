//! pop-broker
