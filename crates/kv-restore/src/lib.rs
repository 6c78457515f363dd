//! kv-restore
