//! Pages that need machines of their own: controllers elsewhere, containers.

use super::{
    network::{MachineSpec, Network, README, as_it_stands},
    page::Step,
    readme::start_redis,
};

/// A cluster file for README's stores.
fn cluster_of_readme(network: &mut Network) {
    let steps = super::page::steps(&super::page::text("README.md"));
    let file = steps.iter().find_map(|step| match step {
        Step::File { name, text } => Some((name.clone(), text.clone())),
        Step::Line { .. } => None,
    });
    let (name, text) = file.expect("README has a cluster file");
    network.written(&name, &text);
}

/// Three machines for controllers; on the first of them the page begins.
const CONTROLLERS: [(&str, &str, &str); 3] =
    [("control", "a", "10.0.9.1"), ("control2", "b", "10.0.9.2"), ("control3", "c", "10.0.9.3")];

/// An etcd with TLS on each, and a certificate for each controller: what the page says that there
/// must be, with each authority as the page makes its own.
fn start_etcd(network: &mut Network) {
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    let authority = format!(
        "umask 077; openssl req -x509 {key} -subj /CN=etcd -keyout etcd-ca.key -out etcd-ca.pem"
    );
    network.on("control").script(&authority);
    let members = CONTROLLERS.map(|(_, name, ip)| format!("{name}=http://{ip}:2380")).join(",");
    for (machine, name, ip) in CONTROLLERS {
        for (authority, file) in [("ca", name.to_owned()), ("etcd-ca", format!("etcd-{name}"))] {
            network.on(machine).script(&format!(
                "umask 077; openssl req {key} -subj /CN={name} -addext subjectAltName=IP:{ip} \
                 -keyout {file}.key -out {file}.csr && openssl x509 -req -in {file}.csr \
                 -CA {authority}.pem -CAkey {authority}.key -CAcreateserial \
                 -copy_extensions copy -out {file}.pem"
            ));
        }
        network.on(machine).start(&format!(
            "etcd --name {name} --data-dir /var/lib/etcd --unsafe-no-fsync \
             --cert-file etcd-{name}.pem --key-file etcd-{name}.key \
             --listen-client-urls https://{ip}:2379 --advertise-client-urls https://{ip}:2379 \
             --listen-peer-urls http://{ip}:2380 --initial-advertise-peer-urls http://{ip}:2380 \
             --initial-cluster {members}"
        ));
    }
}

#[test]
fn the_controller_can_be_elsewhere() {
    let more: [MachineSpec; 2] =
        [("control2", &[("control", "10.0.9.2/24")]), ("control3", &[("control", "10.0.9.3/24")])];
    let mut network = Network::new("controller", &[README, &more].concat());
    start_redis(&mut network);
    cluster_of_readme(&mut network);
    network.typed("switch", "sysctl net.ipv4.ip_forward=1");
    network.follow("docs/operations/controller.md", "control", |network, step| {
        let Step::Line { text, .. } = step else { return false };
        if !text.contains("--state") {
            return false;
        }
        start_etcd(network);
        for (machine, name, ip) in CONTROLLERS {
            let own = text.replace("--name a", &format!("--name {name}"));
            let own = own.replace("--listen 10.0.9.1", &format!("--listen {ip}"));
            let own = own.replace(
                "--tls-cert a.pem --tls-key a.key",
                &format!("--tls-cert {name}.pem --tls-key {name}.key"),
            );
            network.typed(machine, &own);
        }
        true
    });
    // Whichever leads, each of them says so.
    let urls = CONTROLLERS.map(|(_, _, ip)| format!("https://{ip}:7118")).join(",");
    let reach = format!("--control {urls} --ca ca.pem --token-file ops.token");
    network.until_said("client", &format!("shortstop tenant list {reach}"), "open");
    let said = network.typed("client", &format!("shortstop control status {reach}"));
    assert!(said.contains("lead"), "{said}");
}

/// What the chip's compiler is asked, on any machine.
#[test]
fn resources_are_told() {
    let mut network = Network::new("resources", &README[..1]);
    network.follow("docs/resources.md", "client", as_it_stands);
}

/// The switch's interfaces lie in a network namespace of its machine, which the page enters; the
/// controller is in there, too.
#[test]
fn a_switch_in_a_namespace_is_seen_by_all_of_its_machine() {
    let mut network = Network::new("containers", &README[1..3]);
    cluster_of_readme(&mut network);
    network.on("switch").script(
        "ip netns add edge && ip link set eth0 netns edge && ip link set eth1 netns edge && \
         ip -n edge link set lo up && ip -n edge link set eth0 up && ip -n edge link set eth1 up",
    );
    network.follow("docs/operations/containers.md", "switch", |network, step| {
        let Step::Line { text, .. } = step else { return false };
        if text.starts_with("nsenter") {
            network.typed("switch", text);
            let said = network.on("switch").heard_of("switch");
            assert!(said.contains("stay attached"), "{said}");
            return true;
        }
        if text.contains("switch status") {
            let said = network.typed("switch", text);
            assert!(said.contains("switch edge") && said.contains("on eth0, eth1"), "{said}");
            return true;
        }
        false
    });
    // What the page warns of.
    network
        .typed("switch", "ip netns exec edge shortstop switch --interface eth0 --interface eth1");
    let said = network.on("switch").heard_of("switch");
    assert!(said.contains("this mount namespace's own"), "{said}");
    let said = network.typed("switch", "shortstop switch status");
    assert!(said.contains("no switch"), "{said}");
}
