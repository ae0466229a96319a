//! The controller beyond loopback: certificate and tokens, as docs/operations/controller.md has it.

use std::{fs, os::unix::fs::PermissionsExt};

use authority::certify;

use super::support::{Kind, Rack, needs_root, until};

/// Where the rack's controller is reached from everywhere.
const CONTROLLER: &str = "10.0.1.254";

#[test]
fn with_certificate_and_tokens_each_may_do_what_its_token_says() {
    needs_root();
    let plain = "\"--listen\", \"0.0.0.0:7118\", \"--insecure\",";
    let safe = "\"--listen\", \"0.0.0.0:7118\", \"--tls-cert\", \"{dir}/control.pem\", \
                \"--tls-key\", \"{dir}/control.key\", \"--tokens\", \"{dir}/tokens.toml\",";
    let of_store = "\"--control\", \"http://{address:switch}:7118\",";
    let of_agent = "\"--control\", \"http://127.0.0.1:7118\",";
    let with = |url: &str, token: &str| {
        format!(
            "\"--control\", \"https://{url}:7118\", \"--ca\", \"{{dir}}/ca.pem\", \"--token-file\", \"{{dir}}/{token}\","
        )
    };
    let mut rack = Rack::build(
        Kind::Kernel,
        &[
            (plain, safe),
            (of_store, &with("{address:switch}", "store.token")),
            (of_agent, &with("127.0.0.1", "switch.token")),
        ],
    );
    certify(&rack.lab.dir(), &[CONTROLLER, "127.0.0.1"], &["control"]);
    for token in [
        "ops admin",
        "rack switch --switch 1",
        "stores store",
        "shop tenant --tenant 7",
        "eye viewer",
    ] {
        let file = token.split(' ').nth(1).expect("a role");
        rack.typed(
            "switch",
            &format!("umask 077; shortstop token {token} 2>> tokens.toml > {file}.token"),
        );
    }
    rack.start();

    let control = format!("--control https://{CONTROLLER}:7118 --ca ca.pem");
    let as_role = |role: &str| format!("{control} --token-file {role}.token");
    let (admin, tenant, viewer) = (as_role("admin"), as_role("tenant"), as_role("viewer"));
    rack.typed("client1", &format!("shortstop tenant create --id 7 --quota 4 {admin}"));
    rack.typed(
        "client1",
        &format!("umask 077; shortstop tenant credentials 7 {tenant} > shop.toml"),
    );
    // As many as its operator gave it, and no more.
    let first_two =
        format!("shortstop page list --tenant 7 {tenant} | grep -oE '[0-9]+/[0-9]+' | head -2");
    rack.typed("client1", &format!("shortstop page return 7 $({first_two}) {tenant}"));
    rack.typed("client1", &format!("shortstop page ask 7 2 {tenant}"));
    let audit = rack.typed("client1", &format!("shortstop audit {viewer}"));
    assert!(audit.contains("ops") && audit.contains("shop"), "{audit}");
    let shop = rack.lab.dir().join("shop.toml");
    let shop = shop.to_string_lossy();
    let of_shop = ["--cluster", &*shop, "--tenant", "7"];
    until("the store follows over TLS", || rack.try_set("client1", "k", "v", &of_shop).ok());
    until("the switch answers", || {
        let got = rack.get_as("client2", "k", &of_shop);
        got.from_switch.then_some(())
    });

    let plainly = format!("--control http://{CONTROLLER}:7118 --token-file admin.token");
    fs::copy(rack.lab.dir().join("admin.token"), rack.lab.dir().join("open.token")).unwrap();
    let open = rack.lab.dir().join("open.token");
    fs::set_permissions(open, fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(rack.lab.dir().join("wrong.token"), "shortstop_wrong\n").unwrap();
    let wrong = rack.lab.dir().join("wrong.token");
    fs::set_permissions(wrong, fs::Permissions::from_mode(0o600)).unwrap();
    for (line, expected) in [
        (format!("tenant list {control}"), &["token"][..]),
        (format!("tenant list {}", as_role("wrong")), &["token"]),
        (format!("tenant list {}", as_role("open")), &["0644", "chmod 600"]),
        (format!("tenant list {plainly}"), &["no controller answers", "https"]),
        (format!("tenant show 8 {tenant}"), &["shop"]),
        (format!("tenant remove 7 {tenant}"), &["shop"]),
        (format!("tenant credentials 7 {viewer}"), &["eye"]),
        (format!("tenant list {}", as_role("store")), &["stores"]),
        (
            format!("tenant list --control https://{CONTROLLER}:7118 --token-file admin.token"),
            &["--ca"],
        ),
    ] {
        rack.refuses("client1", &format!("shortstop {line}"), expected);
    }
}
