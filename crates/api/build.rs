//! Generates the gRPC types.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    tonic_prost_build::configure()
        .bytes(".")
        .compile_protos(&["proto/shortstop.proto"], &["proto"])?;
    Ok(())
}
