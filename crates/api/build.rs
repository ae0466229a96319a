//! Generates the gRPC types.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    tonic_prost_build::configure()
        .bytes(".")
        .btree_map(".")
        .compile_protos(&["proto/shortstop.proto"], &["proto"])?;
    Ok(())
}
