//! Compiles `proto/` to Rust with protox, so that no machine needs `protoc`.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let descriptors = protox::compile(["apache/rocketmq/v2/service.proto"], ["proto"])?;
    tonic_prost_build::configure()
        .build_server(true)
        .build_client(true)
        // A body is handed from the socket to the store without a copy.
        .bytes(".")
        // Ordered, so that equal messages have equal bytes in every run.
        .btree_map(".")
        .compile_fds(descriptors)?;
    Ok(())
}
