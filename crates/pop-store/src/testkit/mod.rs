//! The conformance kit, and the stores that misbehave on purpose.
