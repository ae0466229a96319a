//! A machine of its own to type on: namespaces of network, mounts, processes and host name, with
//! empty `/etc/shortstop`, `/run`, `/var/lib` and `/usr/local`, a file system of BPF of its own,
//! and the programs of this build in PATH.
//!
//! Nothing of it has a name outside, and the kernel ends all of it with its first process, which
//! ends with the thread that made it. So nothing is left behind however a test ends, and other
//! labs are not in the way.

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
};

use lab::testing::{PATIENCE, until};

use super::role::Role;

/// What the shell prints between two commands, before the status of the one that ended.
const END: char = '\u{1e}';

/// A machine that is removed when dropped.
pub struct Machine {
    /// What it is called in tests, and its host name.
    pub name: &'static str,
    /// Its first process and the `unshare` that started it.
    first: Child,
    /// The first process, by the number that it has outside.
    pid: u32,
    terminal: Option<Terminal>,
    /// Whether pages mean this machine where they say that something is typed where the controller
    /// runs.
    pub runs_controller: bool,
    /// What goes on in terminals of its own.
    roles: Vec<RunningRole>,
}

/// A shell that commands are typed into, one after the other.
struct Terminal {
    shell: Child,
    heard: Receiver<String>,
}

struct RunningRole {
    role: Role,
    child: Child,
    log: std::path::PathBuf,
}

/// What came of a command.
#[derive(Debug)]
pub struct Answer {
    /// Its exit status.
    pub status: i32,
    /// What it printed, on standard output and error.
    pub said: String,
}

/// A command that the kernel kills when this thread ends.
fn bound_to_this_thread(program: &str) -> Command {
    let mut command = Command::new(program);
    // SAFETY: prctl is async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        });
    }
    command
}

impl Machine {
    /// A machine whose programs are those of `programs`, and where `home` is the folder that
    /// people type in.
    pub fn new(name: &'static str, home: &Path, programs: &Path) -> Machine {
        let mut first = bound_to_this_thread("unshare")
            .args(["--net", "--mount", "--uts", "--pid", "--fork", "--kill-child"])
            .args(["/bin/sh", "-c", include_str!("machine.sh"), "sh"])
            .args([home, programs, Path::new(name)])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare, of util-linux");
        let mut line = String::new();
        let said = first.stdout.take().expect("a pipe");
        BufReader::new(said).read_line(&mut line).expect("a line");
        let pid = line.trim().parse().unwrap_or_else(|e| panic!("{name}: {e}: {line:?}"));
        Machine { name, first, pid, terminal: None, runs_controller: false, roles: vec![] }
    }

    /// The number of its first process.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// A command that runs in it, in the folder that people type in.
    fn inside(&self, shell: &str) -> Command {
        let mut command = bound_to_this_thread("nsenter");
        let pid = self.pid.to_string();
        command.args(["--target", &pid, "--net", "--mount", "--uts", "--pid", "--"]);
        command.args(["/bin/sh", "-c", &format!("cd /mnt/home || exit\n{shell}")]);
        command.env_remove("SHORTSTOP_LOG").env("HOME", "/mnt/home");
        command.env("PATH", "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command
    }

    /// Runs a script of the test's own, which has to succeed.
    pub fn script(&self, script: &str) -> String {
        let output = self.inside(script).stdin(Stdio::null()).output().expect("nsenter");
        assert!(output.status.success(), "{}: {script}\n{output:?}", self.name);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Nobody knows there what the kernel accepts, and no file system of BPF is mounted, as after a
    /// boot: a switch tries all programs before it serves, and those of a tenant are there when it
    /// comes.
    pub fn just_booted(&self) {
        self.script("umount /sys/fs/bpf");
    }

    /// Starts something of the test's own, which goes on until the machine ends.
    pub fn start(&self, script: &str) {
        self.script(&format!("{{ {script}; }} </dev/null >/dev/null 2>&1 &"));
    }

    /// Types a command into the machine's terminal and waits until it has ended.
    pub fn typed(&mut self, line: &str) -> Answer {
        let name = self.name;
        if self.terminal.is_none() {
            self.terminal = Some(Terminal::open(self.inside("exec sh 2>&1")));
        }
        let terminal = self.terminal.as_mut().expect("one");
        let stdin = terminal.shell.stdin.as_mut().expect("a pipe");
        // In this shell, so that variables stay; and the command does not read what follows.
        let text = format!("{{ {line}\n}} </dev/null\nprintf '{END}%d\\n' $?\n");
        stdin.write_all(text.as_bytes()).expect("the shell reads");
        let mut said = String::new();
        loop {
            match terminal.heard.recv_timeout(PATIENCE) {
                Ok(line) => match line.split_once(END) {
                    Some((last, status)) => {
                        said += last;
                        return Answer { status: status.parse().expect("a number"), said };
                    }
                    None => said += &format!("{line}\n"),
                },
                Err(error) => panic!("{name}: {line}\n{error}; it said:\n{said}"),
            }
        }
    }

    /// Types what runs until it is ended into a terminal of its own, and waits until it is ready.
    /// One of the same kind that is there is ended first.
    pub fn typed_role(&mut self, line: &str, role: Role, home: &Path) {
        self.end_role(&role);
        let (name, number) = (self.name, self.roles.len());
        let log = home.join(format!(".{name}-{}-{number}.log", role.kind));
        let file = std::fs::File::create(&log).expect("a log");
        let pid_file = format!("/run/terminal-{}.pid", role.kind);
        let mut command = self.inside(&format!("echo $$ >{pid_file} && exec {line}"));
        let stderr = file.try_clone().expect("a descriptor");
        let child = command.stdin(Stdio::null()).stdout(file).stderr(stderr).spawn();
        let mut child = child.expect("nsenter");
        until(&format!("{name}: {line}: ready"), || {
            let said = || std::fs::read_to_string(&log).unwrap_or_default();
            let ended = child.try_wait().expect("a child");
            assert!(ended.is_none(), "{name}: {line}\nended ({ended:?}):\n{}", said());
            role.is_ready(self.pid, &said(), |command| self.script(command)).then_some(())
        });
        self.roles.push(RunningRole { role, child, log });
    }

    /// Ends a role as Ctrl-C or systemd do, if it runs.
    pub fn end_role(&mut self, role: &Role) {
        let Some(at) = self.roles.iter().position(|running| running.role.kind == role.kind) else {
            return;
        };
        self.script(&format!("kill -TERM $(cat /run/terminal-{}.pid) || :", role.kind));
        let mut running = self.roles.remove(at);
        until(&format!("{}: the {} ends", self.name, role.kind), || {
            running.child.try_wait().expect("a child")
        });
    }

    /// What a role has printed so far.
    pub fn heard_of(&self, kind: &str) -> String {
        let running = self.roles.iter().find(|running| running.role.kind == kind);
        let log = &running.unwrap_or_else(|| panic!("{}: no {kind} runs", self.name)).log;
        std::fs::read_to_string(log).expect("its log")
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // `unshare --kill-child` ends the first process, and the kernel all others of its machine.
        let _ = self.first.kill();
        let _ = self.first.wait();
        let terminal = self.terminal.iter_mut().map(|terminal| &mut terminal.shell);
        for child in terminal.chain(self.roles.iter_mut().map(|running| &mut running.child)) {
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            for running in &self.roles {
                let said = std::fs::read_to_string(&running.log).unwrap_or_default();
                let last: Vec<&str> = said.lines().rev().take(12).collect();
                let last: Vec<&str> = last.into_iter().rev().collect();
                eprintln!("{}, {}:\n{}", self.name, running.role.kind, last.join("\n"));
            }
        }
    }
}

impl Terminal {
    fn open(mut command: Command) -> Terminal {
        let mut shell = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("nsenter");
        let (tell, heard) = channel();
        let said = BufReader::new(shell.stdout.take().expect("a pipe"));
        std::thread::spawn(move || {
            for line in said.split(b'\n').map_while(Result::ok) {
                if tell.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    return;
                }
            }
        });
        Terminal { shell, heard }
    }
}
