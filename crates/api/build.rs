//! Generates the gRPC types.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    tonic_prost_build::configure()
        .bytes(".")
        .btree_map(".")
        .type_attribute("StatusReply", "#[derive(serde::Serialize)]")
        .type_attribute("SwitchStatus", "#[derive(serde::Serialize)]")
        .compile_protos(&["proto/shortstop.proto"], &["proto"])?;
    Ok(())
}
