//! Machines of their own with wires between them, and pages that are typed there.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use lab::{
    process::product,
    testing::{needs_root, until},
};

use super::{
    NOT_TYPED, WALKED,
    machine::{Answer, Machine},
    page::{self, Step},
    role::Role,
};

/// A machine of a network: its name, and its interfaces `eth0`, `eth1`, ... as the segment that
/// each is on and its address with the length of the prefix. What is not on its segments is behind
/// the address that ends in 254 on its first one.
pub type MachineSpec = (&'static str, &'static [(&'static str, &'static str)]);

/// README's network, with room for a controller elsewhere.
pub const README: &[MachineSpec] = &[
    ("client", &[("clients", "10.0.1.1/24")]),
    (
        "switch",
        &[("clients", "10.0.1.254/24"), ("stores", "10.0.2.254/24"), ("control", "10.0.9.254/24")],
    ),
    ("store1", &[("stores", "10.0.2.1/24")]),
    ("store2", &[("stores", "10.0.2.2/24")]),
    ("control", &[("control", "10.0.9.1/24")]),
];

/// Machines, and what lies between them.
pub struct Network {
    machines: Vec<Machine>,
    /// Where the segments are: bridges of a machine that nobody types on.
    _wires: Machine,
    /// The folder that everybody types in, on each machine the same: whoever reads copies files.
    home: PathBuf,
}

fn ip_in(machine: &Machine, words: &str) {
    let pid = machine.pid().to_string();
    let all: Vec<&str> = words.split_whitespace().collect();
    let output =
        Command::new("nsenter").args(["--target", &pid, "--net", "ip"]).args(&all).output();
    let output = output.expect("nsenter, of util-linux");
    assert!(output.status.success(), "{}: ip {words}: {output:?}", machine.name);
}

impl Network {
    /// Makes machines, for one test.
    pub fn new(test: &str, specs: &[MachineSpec]) -> Network {
        needs_root();
        let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("guide-{test}"));
        let _ = fs::remove_dir_all(&home);
        fs::create_dir_all(&home).expect("a folder to type in");
        let programs = product().expect("the program").with_file_name("");
        let wires = Machine::new("wires", &home, &programs);
        let mut segments: Vec<&str> = vec![];
        let mut machines = vec![];
        for (name, interfaces) in specs {
            let machine = Machine::new(name, &home, &programs);
            for (i, (segment, address)) in interfaces.iter().enumerate() {
                if !segments.contains(segment) {
                    segments.push(segment);
                    ip_in(&wires, &format!("link add name {segment} type bridge"));
                    ip_in(&wires, &format!("link set dev {segment} up"));
                }
                let (far, pid) = (format!("{name}{i}"), machine.pid());
                ip_in(
                    &wires,
                    &format!("link add name {far} type veth peer name eth{i} netns {pid}"),
                );
                ip_in(&wires, &format!("link set dev {far} master {segment} up"));
                machine.script(&format!(
                    "ip addr add {address} dev eth{i} && ip link set dev eth{i} up && \
                     ethtool -K eth{i} tx off sg off tso off gso off gro off >/dev/null 2>&1"
                ));
            }
            let (_, first) = interfaces[0];
            let router = format!("{}.254", first.rsplit_once('.').expect("an address").0);
            if !first.starts_with(&router) {
                machine.script(&format!("ip route add default via {router}"));
            }
            machines.push(machine);
        }
        Network { machines, _wires: wires, home }
    }

    /// A machine by its name.
    pub fn on(&mut self, name: &str) -> &mut Machine {
        let has_controller = self.machines.iter().any(|machine| machine.runs_controller);
        let is_it = |machine: &&mut Machine| match name {
            "control" if has_controller => machine.runs_controller,
            _ => machine.name == name,
        };
        let found = self.machines.iter_mut().find(is_it);
        found.unwrap_or_else(|| panic!("there is no machine {name}"))
    }

    /// Types a command that has to succeed, as all others do; gives what it printed.
    pub fn typed(&mut self, machine: &str, line: &str) -> String {
        let answer = self.answered(machine, line);
        assert_eq!(answer.status, 0, "{machine}: {line}\n{}", answer.said);
        answer.said
    }

    /// Types a command, or what runs until it is ended; gives what came of it.
    pub fn answered(&mut self, machine: &str, line: &str) -> Answer {
        println!("{machine}# {line}");
        let home = self.home.clone();
        match Role::of(line) {
            Some(role) => {
                self.on(machine).typed_role(line, role, &home);
                Answer { status: 0, said: String::new() }
            }
            None => self.on(machine).typed(line),
        }
    }

    /// Types a command again and again until its output has this.
    pub fn until_said(&mut self, machine: &str, line: &str, part: &str) -> String {
        until(&format!("{machine}: {line}: {part}"), || {
            let answer = self.answered(machine, line);
            (answer.status == 0 && answer.said.contains(part)).then_some(answer.said)
        })
    }

    /// Writes a file of a page: on each machine, or into the folder that all type in.
    pub fn written(&mut self, name: &str, text: &str) {
        let draft = self.home.join(name.rsplit('/').next().expect("a name"));
        fs::write(&draft, text).expect("a file");
        // Files that hold secrets are refused if others may read them.
        fs::set_permissions(&draft, PermissionsExt::from_mode(0o600)).expect("a file");
        if name.starts_with('/') {
            let here = draft.file_name().expect("a name").to_string_lossy();
            for machine in &self.machines {
                machine.script(&format!("cp -p {here} {name}"));
            }
        }
    }

    /// Carries out a whole page, in its order. `usual` is the machine on which one types where the
    /// page names none. `special` is asked first: for what the page says in words beside the lines,
    /// and gives true for a step that it has carried out itself.
    pub fn follow(
        &mut self,
        page: &str,
        usual: &str,
        mut special: impl FnMut(&mut Network, &Step) -> bool,
    ) {
        assert!(WALKED.contains(&page), "{page} is not among the pages that are typed");
        for step in page::steps(&page::text(page)) {
            if special(self, &step) {
                continue;
            }
            match &step {
                Step::File { name, text } => self.written(name, text),
                Step::Line { place, text, shown } => {
                    if let Some((_, why)) =
                        NOT_TYPED.iter().find(|(begin, _)| text.starts_with(begin))
                    {
                        println!("{page}: not typed: {text}: {why}");
                        continue;
                    }
                    let said = self.typed(place.unwrap_or(usual), text);
                    if let Some(shown) = shown {
                        assert!(
                            page::is_as_shown(&said, shown),
                            "{page}: {text}\nprinted\n{said}\nand the page shows\n{shown}"
                        );
                    }
                }
            }
        }
    }
}

impl Drop for Network {
    /// Takes the folder away, unless somebody wants to look into it.
    fn drop(&mut self) {
        self.machines.clear();
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.home);
        }
    }
}

/// Nothing is special in this page.
pub fn as_it_stands(_: &mut Network, _: &Step) -> bool {
    false
}
