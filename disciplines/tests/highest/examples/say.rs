//! Says a number for a key, and prints the highest that anybody said:
//! `say CLUSTER TENANT KEY NUMBER`.

use client::{Client, Options};
use wire::Cluster;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [cluster, tenant, key, number] = &words[..] else {
        return Err("usage: say CLUSTER TENANT KEY NUMBER".into());
    };
    let cluster = Cluster::parse(&std::fs::read_to_string(cluster)?)?;
    let client = Client::connect(&cluster, tenant.parse()?, Options::default()).await?;
    let (highest, _) = client.ask(key, number.parse()?, "").await?;
    println!("{highest}");
    Ok(())
}
