//! The cache through its public API, on a store that fails, with clocks that stand still.

mod acks;
mod bounds;
mod damage;
mod dead_letter;
mod foreign;
mod lifecycle;
mod mutants;
mod outcomes;
mod own_log;
mod sink;
mod world;
mod writes;
