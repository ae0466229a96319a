//! The roles that tests of the lab start as processes, where the real binary is not at hand:
//! `link` as in the binary, and `hold NAME`, which makes a lab and waits to be killed.

use std::io::Write;

use lab::{link, rack::Lab};
use plan::topology::{ProcessSpec, Topology};

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["link", "--a", a, "--b", b, "--fault", fault] => {
            let counts = link::run(a, b, serde_json::from_str(fault)?, || {
                println!("ready");
                let _ = std::io::stdout().flush();
            })?;
            println!("{}", serde_json::to_string(&counts)?);
            Ok(())
        }
        ["hold", name] => hold(name),
        _ => anyhow::bail!("expected `link ...` or `hold NAME`, got {words:?}"),
    }
}

fn hold(name: &str) -> anyhow::Result<()> {
    let text = "[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n[[link]]\nends = [\"a\", \"b\"]\n";
    let mut lab = Lab::create(name, Topology::parse(text)?, false)?;
    let spec: ProcessSpec = toml::from_str("name = \"sleep\"\ncommand = [\"sleep\", \"1000\"]")?;
    lab.start("a", &spec, false)?;
    println!("ready");
    std::io::stdout().flush()?;
    loop {
        std::thread::park();
    }
}
