//! Pages that go on from README's set-up, each on a network of its own.

use std::path::Path;

use clap::CommandFactory;

use super::{
    network::{Network, README, as_it_stands},
    page::Step,
    readme::{in_words, start_redis},
};

/// README's network as its reader has it after the first write: the cluster file everywhere, and
/// stores, controller and switch at work.
fn after_readme(test: &str) -> Network {
    let mut network = Network::new(test, README);
    start_redis(&mut network);
    let mut is_over = false;
    network.follow("README.md", "switch", |network, step| {
        let Step::Line { text, .. } = step else { return false };
        is_over |= text.starts_with("shortstop get") || text.starts_with("shortstop gateway");
        is_over
            || !text.starts_with("sysctl") && !text.starts_with("shortstop ")
            || in_words(network, step)
    });
    network
}

/// The same, where stores follow the controller, and tenant 7 is there: what the pages mean that
/// speak of tenants made at run time.
fn with_tenant_seven(test: &str) -> Network {
    let mut network = after_readme(test);
    network.follow("docs/operations/tenants.md", "switch", |network, step| {
        let Step::Line { text, .. } = step else { return false };
        let is_wanted = ["shortstop control", "shortstop store", "shortstop tenant create"];
        let is_wanted = is_wanted.iter().any(|begin| text.starts_with(begin));
        let is_wanted = is_wanted || text.contains("tenant credentials 7 > shop.toml");
        !is_wanted || in_words(network, step)
    });
    network
}

/// `get` and `set` stand for the tenant's clients, as the page says; everything else is typed where
/// the controller runs.
#[test]
fn a_tenants_life_goes_on_from_readme() {
    let mut network = after_readme("tenants");
    network.follow("docs/operations/tenants.md", "switch", |network, step| {
        let Step::Line { text, .. } = step else { return false };
        if text.starts_with("shortstop get") || text.starts_with("shortstop set") {
            // Stores and switches follow the controller in a moment.
            let part = if text.contains(" set ") { "" } else { "Ada" };
            network.until_said("client", text, part);
            return true;
        }
        if text.starts_with("curl") {
            let said = network.typed("switch", text);
            assert!(!said.contains("{\"error\":\""), "{text}\n{said}");
            return true;
        }
        in_words(network, step)
    });
    let said = network.typed("switch", "shortstop tenant list");
    assert!(!said.contains("shop") && !said.contains("blog"), "{said}");
}

#[test]
fn what_goes_on_can_be_watched() {
    let mut network = after_readme("watching");
    network.on("switch").runs_controller = true;
    network.follow("docs/operations/watching.md", "switch", as_it_stands);
    network.follow("docs/operations/topology.md", "switch", as_it_stands);
    let said = network.typed("switch", "shortstop topology show");
    assert!(said.contains("declared"), "{said}");
}

#[test]
fn redis_clients_go_by_the_gateway() {
    let mut network = after_readme("gateway");
    network.follow("docs/gateway.md", "switch", as_it_stands);
    let said = network.typed("client", "redis-cli -p 6380 get \"$(printf '%300s' long)\"");
    assert_eq!(said.trim(), "Ada");
    let said = network.typed("client", "redis-cli -p 6380 ttl user:43");
    assert!(said.trim().parse::<u64>().is_ok_and(|left| left > 8_900_000), "{said}");
}

#[test]
fn values_can_be_sealed() {
    let mut network = with_tenant_seven("sealed");
    network.follow("docs/security.md", "client", as_it_stands);
    let plain = network.answered("client", "shortstop get --cluster shop.toml --tenant 7 user:42");
    assert_eq!(plain.status, 1, "without the seal key there is no such key\n{}", plain.said);
}

#[test]
fn writes_are_answered_by_switches() {
    let mut network = with_tenant_seven("write-back");
    network.on("switch").runs_controller = true;
    network.on("store1").start("memcached -u root -l 127.0.0.1");
    network.follow("docs/operations/write-back.md", "switch", as_it_stands);
    let said = network.typed("switch", "shortstop tenant show 7");
    assert!(said.contains("100 ms") || said.contains("100ms"), "{said}");
}

#[test]
fn a_switch_without_bpf_serves() {
    let mut network = after_readme("soft");
    network.typed("switch", "shortstop switch detach");
    network.follow("docs/operations/soft-switch.md", "switch", as_it_stands);
    let get = "shortstop get --cluster /etc/shortstop/cluster.toml user:42 --json";
    network.until_said(
        "client",
        "shortstop set --cluster /etc/shortstop/cluster.toml user:42 Ada",
        "",
    );
    network.until_said("client", get, "\"from\":\"switch\"");
}

#[test]
fn the_kernel_is_asked() {
    let mut network = Network::new("install", &README[1..2]);
    network.follow("docs/operations/install.md", "switch", as_it_stands);
}

/// A unit of docs/systemd, with each of its settings in one line.
fn unit_text(unit: &str) -> String {
    let text = super::page::text(&format!("docs/systemd/shortstop-{unit}.service"));
    text.replace("\\\n", " ")
}

/// What systemd makes for a unit and removes when the unit's processes have ended, below /run.
fn removed_with(unit: &str) -> Vec<String> {
    let text = unit_text(unit);
    let lists = text.lines().filter_map(|line| line.strip_prefix("RuntimeDirectory="));
    lists.flat_map(str::split_whitespace).map(|name| format!("/run/{name}")).collect()
}

/// One that ends takes no lock or socket of another's with it.
#[test]
fn no_unit_removes_what_another_writes_to() {
    /// Where agents have the locks of their switches.
    const LOCKS: &str = "/run/shortstop";
    let units = ["store", "control", "switch", "gateway"];
    for unit in units {
        for removed in removed_with(unit).iter().map(Path::new) {
            assert!(!Path::new(LOCKS).starts_with(removed), "{unit}: {removed:?}");
            for other in units.into_iter().filter(|other| *other != unit) {
                let theirs = removed_with(other);
                let is_safe = theirs.iter().all(|theirs| !Path::new(theirs).starts_with(removed));
                assert!(is_safe, "{unit} removes what {other} has");
            }
        }
    }
    let socket = format!("--status-socket {}/", removed_with("store")[0]);
    assert!(started_by("store").contains(&socket), "it may write nowhere else below /run");
}

/// What a unit of docs/systemd starts, as a shell would be given it.
fn started_by(unit: &str) -> String {
    let text = unit_text(unit);
    let line = text.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/local/bin/"));
    let line = line.unwrap_or_else(|| panic!("{unit}: no ExecStart below /usr/local/bin"));
    // The copy of the file that systemd gives to the unit.
    let line = line.replace("%d/cluster.toml", "/etc/shortstop/cluster.toml");
    line.replace("%S", "/var/lib")
}

/// Only the switch needs any.
#[test]
fn units_without_a_switch_have_no_capability_and_get_none() {
    for unit in ["store", "control", "gateway"] {
        let text = unit_text(unit);
        for line in ["CapabilityBoundingSet=", "NoNewPrivileges=yes", "RestrictNamespaces=yes"] {
            assert!(text.lines().any(|own| own == line), "{unit}: {line}");
        }
    }
}

/// Who begins by hand, as the README does, and goes on with the unit has the same state.
#[test]
fn the_controllers_unit_goes_on_with_the_state_of_one_without_options() {
    let program = shortstop::cmd::Cli::command();
    let control = program.find_subcommand("control").expect("a command");
    let state = control.get_arguments().find(|option| option.get_id() == "state");
    let default = state.and_then(|state| state.get_default_values().first()).expect("a default");
    let default = default.to_str().expect("a path");
    let started = started_by("control");
    let (_, given) = started.split_once("--state ").expect("a place");
    assert_eq!(given.split(' ').next(), Some(default));
    let made = unit_text("control");
    let made = made.lines().find_map(|line| line.strip_prefix("StateDirectory="));
    assert_eq!(made.map(|made| format!("/var/lib/{made}")).as_deref(), Some(default));
}

#[test]
fn services_start_and_are_detached() {
    let mut network = Network::new("services", README);
    start_redis(&mut network);
    network.follow("README.md", "switch", |_, step| matches!(step, Step::Line { .. }));
    network.typed("switch", "sysctl net.ipv4.ip_forward=1");
    network.typed("store1", &started_by("store"));
    let second = started_by("store").replace("10.0.2.1:7117", "10.0.2.2:7117");
    network.typed("store2", &second);
    network.typed("switch", &started_by("control"));
    network.typed("switch", &started_by("switch"));
    let cluster = "--cluster /etc/shortstop/cluster.toml";
    network.until_said("client", &format!("shortstop set {cluster} user:42 Ada"), "");
    let get = format!("shortstop get {cluster} user:42 --json");
    network.until_said("client", &get, "\"from\":\"switch\"");
    network.follow("docs/operations/services.md", "switch", as_it_stands);
    let said = network.typed("switch", "shortstop switch status");
    assert!(said.contains("no switch"), "{said}");
}

/// The example has every secret left out: `...` stands for 32 hex digits.
#[test]
fn the_example_of_a_cluster_file_is_one() {
    let mut network = Network::new("cluster-file", README);
    start_redis(&mut network);
    network.follow("docs/operations/cluster-file.md", "switch", |network, step| {
        let Step::File { name, text } = step else { return false };
        let secrets = text.matches("\"...\"").count();
        let text = (0..secrets).fold(text.clone(), |text, _| {
            let secret = network.typed("switch", "openssl rand -hex 16");
            text.replacen("\"...\"", &format!("{:?}", secret.trim()), 1)
        });
        network.written(name, &text);
        true
    });
    let cluster = "--cluster /etc/shortstop/cluster.toml";
    network.typed("switch", "sysctl net.ipv4.ip_forward=1");
    network.typed("switch", &format!("shortstop control {cluster}"));
    for store in ["1", "2"] {
        let socket = "--status-socket /run/shortstop/store.sock";
        let line = format!("shortstop store --listen 10.0.2.{store}:7117 {cluster} {socket}");
        network.typed(&format!("store{store}"), &line);
    }
    network.until_said("client", &format!("shortstop set {cluster} --tenant 7 user:42 Ada"), "");
    let said = network.typed("client", &format!("shortstop get {cluster} --tenant 7 user:42"));
    assert_eq!(said.trim(), "Ada");
}
