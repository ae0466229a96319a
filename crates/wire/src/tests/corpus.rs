//! The fuzz targets' checks over the kept corpora and, from a fixed seed, over changed copies
//! of them.

#[path = "../../../../fuzz/checks/cluster.rs"]
mod cluster;
#[path = "../../../../fuzz/checks/decode.rs"]
mod decode;

/// Changed copies of each kept input.
const CHANGES: usize = 2_000;

struct Noise(u64);

impl Noise {
    fn below(&mut self, n: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}

fn run(corpus: &str, check: fn(&[u8])) {
    let folder = format!("{}/../../fuzz/corpus/{corpus}", env!("CARGO_MANIFEST_DIR"));
    let files = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{folder}: {e}"));
    let mut inputs: Vec<_> =
        files.map(|file| std::fs::read(file.expect("readable").path()).expect("a file")).collect();
    inputs.sort();
    let mut noise = Noise(1);
    for input in &inputs {
        check(input);
        for _ in 0..CHANGES {
            let mut changed = input.clone();
            for _ in 0..1 + noise.below(4) {
                let Some(last) = changed.len().checked_sub(1) else { break };
                match noise.below(4) {
                    0 => changed.truncate(noise.below(last + 1)),
                    1 => changed.insert(noise.below(last + 1), noise.below(256) as u8),
                    _ => changed[noise.below(last + 1)] = noise.below(256) as u8,
                }
            }
            check(&changed);
        }
    }
    assert!(!inputs.is_empty(), "{folder} holds no inputs");
}

#[test]
fn packets() {
    run("decode", decode::decode);
}

#[test]
fn cluster_files() {
    run("cluster", cluster::cluster);
}
