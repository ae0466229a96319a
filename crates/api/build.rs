//! Generates the gRPC types. The descriptor comes from a parser in Rust, so no `protoc` is needed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto/shortstop.proto");
    let files = protox::compile(["proto/shortstop.proto"], ["proto"])?;
    tonic_prost_build::configure()
        .bytes(".")
        .compile_fds(files)?;
    Ok(())
}
