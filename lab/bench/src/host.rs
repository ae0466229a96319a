//! Where a bench ran and what was built: it stands in each report and under each figure.

use std::{fmt, fs};

use serde::Serialize;

/// Where something was measured, and which build: without these a figure says nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Host {
    /// The processor's model.
    pub cpu: String,
    /// Processors that this process may use.
    pub cores: usize,
    /// The kernel's release.
    pub kernel: String,
    /// Of the sources that this was built from, with `-dirty` if they were changed since; `None`:
    /// whoever built it did not say (`make bench` does, by `SHORTSTOP_COMMIT`).
    pub commit: Option<String>,
}

impl Host {
    /// This one.
    pub fn here() -> Host {
        let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let uname = nix::sys::utsname::uname();
        Host {
            cpu: model(&cpus).unwrap_or("unknown").into(),
            cores: std::thread::available_parallelism().map_or(1, |cores| cores.get()),
            kernel: uname
                .map_or("unknown".into(), |uname| uname.release().to_string_lossy().into_owned()),
            commit: option_env!("SHORTSTOP_COMMIT")
                .filter(|commit| !commit.is_empty())
                .map(String::from),
        }
    }
}

/// The model of the first processor that `/proc/cpuinfo` has.
fn model(cpuinfo: &str) -> Option<&str> {
    let lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    let mut models = lines.filter(|(name, _)| name.trim_end() == "model name");
    models.next().map(|(_, model)| model.trim())
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let commit = self.commit.as_deref().unwrap_or("unknown");
        write!(f, "{} cores of {}, Linux {}, commit {commit}", self.cores, self.cpu, self.kernel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_that_of_the_first_processor() {
        let cpuinfo = "processor\t: 0\nmodel\t\t: 1\nmodel name\t: A: b\nprocessor\t: 1\n";
        assert_eq!(model(cpuinfo), Some("A: b"));
        assert_eq!(model("processor: 0\n"), None);
    }
}
