//! Tenants with secrets: each has its own keys, and nobody else gets at them.

use super::support::{Kind, Rack, needs_root, until, write_private};

lab::on_both!(tenants_share_names_but_not_values);

const SECRET: &str = "000102030405060708090a0b0c0d0e0f";
const WRONG: &str = "ff0102030405060708090a0b0c0d0e0f";

fn tenants_share_names_but_not_values(kind: Kind) {
    needs_root();
    let tenants = format!(
        "last = 127\n[[tenant]]\nid = 7\nsecret = \"{SECRET}\"\n\
         [[tenant]]\nid = 8\nsecret = \"101112131415161718191a1b1c1d1e1f\"\n"
    );
    let closed = "partitions = 128\nopen_tenant = false\n\
                  system_secret = \"202122232425262728292a2b2c2d2e2f\"";
    let populate = "\"--populate\", \"1000:128\", ";
    let rack = Rack::with(
        kind,
        &[
            ("partitions = 128", closed),
            ("last = 127\n", &tenants),
            (populate, ""),
            ("\"shortstop-lab\", \"store\"", "\"shortstop\", \"store\""),
        ],
    );
    let (seven, eight) = (["--tenant", "7"], ["--tenant", "8"]);

    rack.set_as("client1", "name", "seven's", &seven);
    assert_eq!(rack.get_as("client2", "name", &eight).value, None);
    rack.set_as("client2", "name", "eight's", &eight);
    let until_cached = |host: &str, tenant: &[&str], value: &str| {
        until(&format!("{value} is cached"), || {
            let got = rack.get_as(host, "name", tenant);
            assert_eq!(got.value.as_deref(), Some(value));
            got.from_switch.then_some(())
        });
    };
    for (tenant, value) in [(seven, "seven's"), (eight, "eight's")] {
        until_cached("client1", &tenant, value);
    }
    until("one's write does not touch the other's copy", || {
        until_cached("client2", &eight, "eight's");
        rack.set_as("client1", "name", "seven's second", &seven);
        let got = rack.get_as("client2", "name", &eight);
        assert_eq!(got.value.as_deref(), Some("eight's"));
        got.from_switch.then_some(())
    });
    let got = rack.get_as("client2", "name", &seven);
    assert_eq!(got.value.as_deref(), Some("seven's second"));

    let good = std::fs::read_to_string(rack.cluster()).unwrap();
    let file = |name: &str, text: String| {
        let path = rack.lab.dir().join(name);
        write_private(&path, &text);
        path.to_string_lossy().into_owned()
    };
    let wrong = file("wrong.toml", good.replace(SECRET, WRONG));
    let open = file("open.toml", good.replace("open_tenant = false", "open_tenant = true"));
    let cluster = rack.cluster();
    for (cluster, tenant, expected) in [
        (&wrong, "7", ["denies", "tenant 7", "its secret differs"]),
        (&open, "0", ["denies", "tenant 0", "switched off"]),
        (&cluster, "0", ["tenant 0", "open_tenant = false", "cluster file"]),
        (&cluster, "9", ["tenant 9", "not in", "cluster file"]),
    ] {
        let target = ["--cluster", cluster, "--tenant", tenant, "--timeout", "1500ms"];
        for words in [vec!["get", "name"], vec!["set", "name", "stolen"], vec!["delete", "name"]] {
            let words = [&["shortstop"], &words[..], &target].concat();
            // Where the machine stands still no answer comes in time, also none that denies it.
            let said = until(&format!("{words:?}"), || {
                let said = rack.refused("client1", &words);
                (!said.contains("no answer") || said.contains("denies")).then_some(said)
            });
            assert!(expected.iter().all(|part| said.contains(part)), "{words:?}: {said}");
        }
    }
    // Nothing of that had an effect.
    assert_eq!(rack.get_as("client1", "name", &seven).value.as_deref(), Some("seven's second"));
    assert!(rack.count("bypass_bad_tag") > 0 && rack.count("bypass_unknown_tenant") > 0);
}
