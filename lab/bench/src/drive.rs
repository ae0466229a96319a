//! The program in front of the one under test (`bpf/drive.bpf.c`): a random key for every run.

use std::os::fd::AsRawFd;

use anyhow::{Context, ensure};
use libbpf_rs::{MapCore, MapFlags, Object};
use wire::{Header, KeyHash, Op, Secret};

use crate::{
    packet,
    runs::{self, Program},
};

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/drive.bpf.o"));
const FRONT_BYTES: usize = 138;
const PICKS: u64 = 16_384;

/// `struct drive_config` of `bpf/drive.bpf.c`.
#[repr(C)]
#[derive(Clone, Copy)]
struct DriveConfig {
    random: u64,
    salt: u64,
    first: u32,
    keys: u32,
    target: u32,
    prepared: u32,
    picked: u32,
    octaves: u32,
    tenants: u32,
    front: [u8; FRONT_BYTES],
    unused: [u8; 2],
}

/// Which requests are made, and who gets them.
#[derive(Clone, Debug)]
pub struct Aim {
    /// Registered with [`Drive::target`].
    pub target: u32,
    /// Keys are numbered `first..first + keys`.
    pub first: u32,
    /// See `first`.
    pub keys: u32,
    /// Mixed into every hash.
    pub salt: u64,
    /// Whose key space.
    pub tenant: u32,
    /// A power of two: key n is asked for in the name of [`tenant_of`] n modulo this. 0: all in
    /// `tenant`'s.
    pub tenants: u32,
    /// Signs the requests; see `prepared`.
    pub secret: Secret,
    /// Room that the requests are padded for.
    pub value_len: usize,
    /// The verdict that every run must end with.
    pub verdict: u32,
    /// Whether they have a checksum; see `prepared`.
    pub checksum: bool,
    /// Whether the driver takes tags and checksums out of a table of at most 65,536 keys, which
    /// what is signed or has a checksum always needs: what is compared with such requests is to
    /// leave as much of the processor's caches to the program.
    pub prepared: bool,
    /// How popular keys are: Zipf's exponent, the first the most; 0: all alike. At most
    /// 65,536 keys.
    pub skew: f64,
    /// Keys are `first..first << octaves` instead, each doubling as popular as the next, as Zipf
    /// with an exponent of 1 has it for those that are not the `first` most popular; at most 15. 0:
    /// they are not.
    pub octaves: u32,
    /// Of the order in which they are asked for.
    pub seed: u64,
}

impl Default for Aim {
    /// No keys, for nobody.
    fn default() -> Aim {
        Aim {
            target: 0,
            first: 0,
            keys: 0,
            salt: 0,
            tenant: wire::TENANT_OPEN,
            tenants: 0,
            secret: Secret::NONE,
            value_len: 0,
            verdict: runs::PASS,
            checksum: false,
            prepared: false,
            skew: 0.0,
            octaves: 0,
            seed: 0,
        }
    }
}

/// The tenant of that number, of those that the driver asks in the names of.
pub fn tenant_of(number: u32) -> u32 {
    (scramble(u64::from(number) + 1) >> 32) as u32
}

const _: () = assert!(size_of::<DriveConfig>() == 184);

fn scramble(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The hash that stands in the request for key `number`: no SipHash, which nobody on the way
/// recomputes.
pub fn hash(number: u32, salt: u64) -> KeyHash {
    let high = scramble(u64::from(number) ^ salt);
    let low = scramble(high.wrapping_add(number.into()));
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&high.to_be_bytes());
    bytes[8..].copy_from_slice(&low.to_be_bytes());
    KeyHash(bytes)
}

/// The 16 bytes of key `number`.
pub fn key(number: u32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&u64::from(number).to_ne_bytes());
    bytes[8..].copy_from_slice(&(!u64::from(number)).to_ne_bytes());
    bytes
}

/// A read request for key `number`.
///
/// # Errors
/// Never for these keys.
fn request(aim: &Aim, number: u32) -> anyhow::Result<Vec<u8>> {
    let header = Header {
        tenant: match aim.tenants {
            0 => aim.tenant,
            tenants => tenant_of(number % tenants),
        },
        client: 0xc11e_0001,
        request: 20_001,
        key_hash: hash(number, aim.salt),
        ..Header::new(Op::ReadRequest)
    };
    packet::payload(header, &key(number), b"", aim.value_len, &aim.secret)
}

/// Keys in the order in which they are asked for, over and over: chance, and the same each time.
fn picks(aim: &Aim) -> Vec<u8> {
    let weights = (1..=aim.keys).map(|rank| f64::from(rank).powf(-aim.skew));
    let sums: Vec<f64> = weights
        .scan(0.0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        })
        .collect();
    let all = sums.last().copied().unwrap_or(0.0);
    let pick = |at: u64| {
        let part = scramble(at ^ aim.salt) as f64 / u64::MAX as f64 * all;
        sums.partition_point(|sum| *sum < part) as u16
    };
    (1..=PICKS).map(pick).flat_map(u16::to_ne_bytes).collect()
}

/// The loaded driver.
pub struct Drive {
    object: Object,
    program: Program,
    out: std::cell::RefCell<Vec<u8>>,
}

impl Drive {
    /// Loads it.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn load() -> anyhow::Result<Drive> {
        let object = runs::load(OBJECT, "drive.bpf.c")?;
        let program = Program::of(&object, "drive")?;
        Ok(Drive { object, program, out: Default::default() })
    }

    /// Makes `program` the target of this number.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn target(&self, number: u32, program: &Program) -> anyhow::Result<()> {
        let descriptor = program.0.as_raw_fd().to_ne_bytes();
        let targets = runs::map(&self.object, "targets")?;
        targets.update(&number.to_ne_bytes(), &descriptor, MapFlags::ANY)?;
        Ok(())
    }

    /// Points the driver at a target. Runs that follow go there.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn aim(&self, aim: &Aim) -> anyhow::Result<AimedDrive<'_>> {
        let frame = packet::request(&request(aim, aim.first)?);
        let prepared = aim.prepared || aim.checksum || aim.secret != Secret::NONE;
        if prepared {
            self.prepare(aim)?;
        }
        let picked = aim.skew > 0.0;
        let config = DriveConfig {
            random: scramble(aim.seed ^ 0x9e37_79b9_7f4a_7c15),
            salt: aim.salt,
            first: aim.first,
            keys: aim.keys,
            target: aim.target,
            prepared: prepared.into(),
            picked: picked.into(),
            octaves: aim.octaves,
            tenants: aim.tenants,
            front: frame[..FRONT_BYTES].try_into()?,
            unused: [0; 2],
        };
        Ok(AimedDrive {
            drive: self,
            picks: picked.then(|| picks(aim)),
            config,
            frame,
            verdict: aim.verdict,
        })
    }

    /// Has it know what is right for each key's request.
    fn prepare(&self, aim: &Aim) -> anyhow::Result<()> {
        let requests = runs::map(&self.object, "requests")?;
        for number in aim.first..aim.first + aim.keys {
            let signed = request(aim, number)?;
            let frame = match aim.checksum {
                true => packet::summed(packet::request(&signed)),
                false => packet::request(&signed),
            };
            let mut right = [0; 16];
            right[..8].copy_from_slice(&signed[72..80]);
            right[8..10].copy_from_slice(&frame[40..42]);
            requests.update(&number.to_ne_bytes(), &right, MapFlags::ANY)?;
        }
        Ok(())
    }
}

/// The driver with something to do.
pub struct AimedDrive<'a> {
    drive: &'a Drive,
    config: DriveConfig,
    picks: Option<Vec<u8>>,
    frame: Vec<u8>,
    verdict: u32,
}

impl AimedDrive<'_> {
    /// The same requests for another target, which ends with that verdict.
    pub fn turn(&mut self, target: u32, verdict: u32) {
        (self.config.target, self.verdict) = (target, verdict);
    }

    /// Nanoseconds of one run of driver and target, over `repeat` runs.
    ///
    /// # Errors
    /// The kernel refuses, or the last verdict is not the expected one.
    pub fn run(&mut self, ingress: u32, repeat: u32) -> anyhow::Result<f64> {
        self.configure()?;
        let mut out = self.drive.out.borrow_mut();
        let (ns, verdict) = self.drive.program.run(&self.frame, ingress, repeat, &mut out)?;
        let (target, expected) = (self.config.target, self.verdict);
        ensure!(verdict == expected, "target {target}: verdict {verdict}, expected {expected}");
        self.scramble();
        Ok(ns)
    }

    /// Sends so many live frames, one at a time, out by `interface`: the target does that.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn send(&mut self, interface: u32, frames: u32) -> anyhow::Result<()> {
        self.configure()?;
        self.drive.program.send(&self.frame, interface, frames)?;
        self.scramble();
        Ok(())
    }

    fn configure(&self) -> anyhow::Result<()> {
        // SAFETY: plain integers and bytes without padding.
        let bytes: [u8; size_of::<DriveConfig>()] = unsafe { std::mem::transmute(self.config) };
        let configs = runs::map(&self.drive.object, "configs").context("the configuration")?;
        configs.update(&0u32.to_ne_bytes(), &bytes, MapFlags::ANY)?;
        if let Some(keys) = &self.picks {
            let picks = runs::map(&self.drive.object, "picks")?;
            picks.update(&0u32.to_ne_bytes(), keys, MapFlags::ANY)?;
        }
        Ok(())
    }

    /// Another run has other keys.
    fn scramble(&mut self) {
        self.config.random = self.config.random.wrapping_mul(0x5851_f42d_4c95_7f2d) ^ 0x1405_7b7e;
    }
}
