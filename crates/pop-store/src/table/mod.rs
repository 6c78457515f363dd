//! Typed views on a store, so that no caller builds a key by hand.
