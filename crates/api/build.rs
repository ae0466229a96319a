//! Generates the gRPC types.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    tonic_prost_build::configure()
        .bytes(".")
        .btree_map(".")
        // Much larger than whatever else a message may be.
        .boxed(".shortstop.v1.Setup.cluster")
        .boxed(".shortstop.v1.ToStore.body.cluster")
        .type_attribute("StatusReply", "#[derive(serde::Serialize)]")
        .type_attribute("SwitchStatus", "#[derive(serde::Serialize)]")
        .compile_protos(&["proto/shortstop.proto"], &["proto"])?;
    Ok(())
}
