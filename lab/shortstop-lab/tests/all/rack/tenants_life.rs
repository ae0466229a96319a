//! A tenant's life: what docs/operations/tenants.md tells people to type, line by line, with the
//! command line and with curl; who sees what of whom; and that pages stay whose they were when the
//! agent and the controller are restarted.

use std::{
    collections::BTreeMap,
    process::{Command, Output},
};

use serde_json::Value;

use super::support::{Kind, Rack, needs_root, until, write_private};

lab::on_both!(
    every_line_of_the_operations_page_works_as_typed,
    tenants_do_not_see_each_other_and_wrong_ones_never_touch_a_cache,
    old_and_new_secrets_work_until_a_rotation_is_finished,
    pages_stay_whose_they_were_over_restarts
);

const PAGE: &str = include_str!("../../../../../docs/operations/tenants.md");
const WRONG: &str = "000102030405060708090a0b0c0d0e0f";

/// The commands that stand in a block between two comments of docs/operations/tenants.md.
fn lines_of(part: &str) -> Vec<&'static str> {
    let begin = format!("<!-- {part} begin -->");
    let end = format!("<!-- {part} end -->");
    let from = PAGE.find(&begin).expect("the part begins") + begin.len();
    let to = PAGE.find(&end).expect("the part ends");
    let lines = PAGE[from..to].lines();
    lines.filter(|line| !line.is_empty() && !line.starts_with("```")).collect()
}

impl Rack {
    /// Runs shell text on a host, in the lab's directory.
    fn shell(&self, host: &str, text: &str) -> Output {
        let mut command: Command = self.command(host, &["/bin/sh", "-e", "-c", text]);
        let output = command.current_dir(self.lab.dir()).output();
        output.expect("the shell can be started")
    }

    /// Runs shell text that has to succeed; gives what it printed.
    pub fn typed(&self, host: &str, text: &str) -> String {
        let output = self.shell(host, text);
        assert!(output.status.success(), "{text}\n{output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// Runs a command that must fail with one line that names all of these.
    pub fn refuses(&self, host: &str, text: &str, expected: &[&str]) {
        let output = self.shell(host, text);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{text} succeeded");
        assert!(output.stdout.is_empty(), "{text}: {output:?}");
        assert_eq!(said.lines().count(), 1, "{text}: one line, not\n{said}");
        for part in expected {
            assert!(said.contains(part), "{text}: {part:?} is not in {said}");
        }
    }

    fn manage(&self, command: &str) -> Value {
        let said = self.typed("switch", &format!("shortstop {command} --json"));
        serde_json::from_str(&said).unwrap_or_else(|e| panic!("{command}: {e}: {said}"))
    }

    /// Who holds which page and how, from the controller; leaving pages are waited for.
    fn owners(&self) -> BTreeMap<String, (u64, String)> {
        until("no page is leaving", || {
            let pages = self.manage("page list");
            let owners = pages.as_array().expect("a list").iter().filter_map(|p| {
                let kind = p["kind"].as_str().expect("a kind");
                let id = format!("{}/{}", p["switch"], p["page"]);
                Some((id, (p["tenant"].as_u64()?, kind.to_string())))
            });
            let owners: BTreeMap<_, _> = owners.collect();
            owners.values().all(|(_, kind)| kind != "leaving").then_some(owners)
        })
    }

    fn own(&self, tenant: u64) -> Vec<String> {
        let owners = self.owners();
        let own = owners.iter().filter(|(_, (of, kind))| *of == tenant && kind == "own");
        own.map(|(page, _)| page.clone()).collect()
    }

    /// No page has an item of another than its owner.
    fn no_foreign_items(&self) {
        let status = self.status();
        let pages = status["page_items"].as_array().expect("pages with items");
        for page in pages {
            assert_eq!(page["foreign_items"], 0, "{page}");
        }
    }

    /// Creates a tenant and gives the name of its credentials' file, once the store knows it.
    pub fn tenant(&self, id: u32, options: &str) -> String {
        self.manage(&format!("tenant create --id {id} {options}"));
        let file = format!("{id}.toml");
        self.typed("switch", &format!("umask 077; shortstop tenant credentials {id} > {file}"));
        let file = self.lab.dir().join(file).to_string_lossy().into_owned();
        until("the store follows the controller", || {
            self.try_set("client1", "first", "1", &of(&file, &id.to_string())).ok()
        });
        file
    }

    fn until_cached_for(&self, file: &str, id: &str, key: &str, value: &str) {
        until("the switch answers", || {
            let got = self.get_as("client2", key, &of(file, id));
            assert_eq!(got.value.as_deref(), Some(value), "{key} of tenant {id}");
            got.from_switch.then_some(())
        });
    }
}

/// Whether a command failed with one line that names all of these; one that says that no answer
/// came in time does not.
fn is_denied(output: &Output, expected: &[&str]) -> bool {
    let said = String::from_utf8_lossy(&output.stderr);
    let is_it = !output.status.success()
        && said.lines().count() == 1
        && expected.iter().all(|part| said.contains(part));
    if !is_it {
        println!("{expected:?} is not in {output:?}");
    }
    is_it
}

fn of<'a>(file: &'a str, id: &'a str) -> [&'a str; 4] {
    ["--cluster", file, "--tenant", id]
}

fn every_line_of_the_operations_page_works_as_typed(kind: Kind) {
    needs_root();
    let rack = Rack::up(kind);
    let mut last = String::new();
    for line in lines_of("tenant's life") {
        // Clients' commands on a client, all others where the controller is.
        let on_client = ["shortstop get", "shortstop set"].iter().any(|c| line.starts_with(c));
        // Whoever of switch and store is told last has it in a moment.
        last = match on_client {
            true => until(line, || {
                let output = rack.shell("client1", line);
                output.status.success().then(|| String::from_utf8(output.stdout).expect("text"))
            }),
            false => rack.typed("switch", line),
        };
    }
    assert!(last.contains("tenant.remove"), "{last}");
    let script = lines_of("tenant's life with curl").join("\n");
    let said = rack.typed("switch", &script);
    assert!(!said.contains("{\"error\":\""), "{said}");
    assert!(said.contains("{\"openapi\":"), "{said}");
    rack.no_foreign_items();
    rack.refuses("switch", "shortstop tenant show 7", &["no tenant 7"]);
}

fn tenants_do_not_see_each_other_and_wrong_ones_never_touch_a_cache(kind: Kind) {
    needs_root();
    let rack = Rack::up(kind);
    let seven = rack.tenant(7, "--name shop --quota 8");
    let eight = rack.tenant(8, "--name blog --quota 2");
    for (file, id, value) in [(&seven, "7", "seven's"), (&eight, "8", "eight's")] {
        rack.set_as("client1", "name", value, &of(file, id));
    }
    rack.until_cached_for(&seven, "7", "name", "seven's");
    rack.until_cached_for(&eight, "8", "name", "eight's");
    rack.no_foreign_items();

    let good = std::fs::read_to_string(&seven).unwrap();
    let secret = rack.manage("tenant show 7 --secrets")["secret"].clone();
    let secret = secret.as_str().expect("a secret");
    let signs = format!("\nsecret = \"{secret}\"");
    let forged = good.replace(&signs, &format!("\nsecret = \"{WRONG}\""));
    let unknown = good.replace("id = 7", "id = 9");
    for (name, text, id, counter) in [
        ("forged", forged, "7", "bypass_bad_tag"),
        ("unknown", unknown, "9", "bypass_unknown_tenant"),
    ] {
        write_private(&rack.lab.dir().join(name), &text);
        let (before, hits) = (rack.count(counter), rack.count("hit"));
        let get = format!("shortstop get --cluster {name} --tenant {id} --timeout 300ms name");
        until("it is denied", || {
            let output = rack.shell("client1", &get);
            assert!(!output.status.success(), "{name} was answered: {output:?}");
            is_denied(&output, &["denies", &format!("tenant {id}")]).then_some(())
        });
        assert!(rack.count(counter) > before, "{counter}");
        assert_eq!(rack.count("hit"), hits, "{name} was answered from a cache");
    }
    // Above its rate: past the cache, or nowhere.
    for (over, counter) in [("forward", "bypass_over_rate"), ("drop", "drop_over_rate")] {
        rack.manage(&format!("tenant change 8 --rate 1 --over-rate {over}"));
        until(counter, || {
            let get = format!("shortstop get --cluster {eight} --tenant 8 --timeout 50ms name");
            rack.shell("client1", &get);
            (rack.count(counter) > 0).then_some(())
        });
    }
    rack.manage("tenant change 8 --rate 0");
    rack.until_cached_for(&eight, "8", "name", "eight's");

    rack.manage("tenant remove 8");
    let get = format!("shortstop get --cluster {eight} --tenant 8 --timeout 300ms name");
    until("the store forgets tenant 8", || {
        is_denied(&rack.shell("client1", &get), &["denies", "tenant 8"]).then_some(())
    });
    rack.until_cached_for(&seven, "7", "name", "seven's");
}

fn old_and_new_secrets_work_until_a_rotation_is_finished(kind: Kind) {
    needs_root();
    let rack = Rack::up(kind);
    let old = rack.tenant(7, "--quota 2");
    rack.set_as("client1", "k", "v", &of(&old, "7"));
    rack.until_cached_for(&old, "7", "k", "v");
    rack.manage("tenant rotate 7");
    rack.refuses("switch", "shortstop tenant rotate 7", &["tenant 7", "finish"]);
    rack.typed("switch", "umask 077; shortstop tenant credentials 7 > new.toml");
    let new = rack.lab.dir().join("new.toml");
    let new = new.to_string_lossy();
    for file in [&*old, &*new] {
        // Whoever of switch and store was told last has it in a moment.
        until("both are taken", || {
            let get = format!("shortstop get --cluster {file} --tenant 7 k");
            rack.shell("client1", &get).status.success().then_some(())
        });
        rack.until_cached_for(file, "7", "k", "v");
    }
    rack.manage("tenant rotate 7 --finish");
    let get = format!("shortstop get --cluster {old} --tenant 7 --timeout 300ms k");
    until("the old secret is not taken", || {
        let output = rack.shell("client1", &get);
        is_denied(&output, &["denies", "its secret differs"]).then_some(())
    });
    rack.until_cached_for(&new, "7", "k", "v");
    let again = "shortstop tenant rotate 7 --finish";
    rack.refuses("switch", again, &["tenant 7", "no rotation"]);
}

fn pages_stay_whose_they_were_over_restarts(kind: Kind) {
    needs_root();
    let mut rack = Rack::up(kind);
    let seven = rack.tenant(7, "--quota 8");
    let eight = rack.tenant(8, "--quota 4");
    for (file, id) in [(&seven, "7"), (&eight, "8")] {
        rack.set_as("client1", "k", id, &of(file, id));
        rack.until_cached_for(file, id, "k", id);
    }
    let before = (rack.own(7), rack.own(8));
    assert_eq!((before.0.len(), before.1.len()), (8, 4));

    rack.kill("switch", "agent");
    rack.start_again("switch", "agent");
    until("the agent is back", || {
        Some(rack.control_status()?["attached"] == true).filter(|is| *is)
    });
    rack.no_foreign_items();
    assert_eq!((rack.own(7), rack.own(8)), before);
    // What a lease ended for meanwhile is fetched again.
    for (file, id) in [(&seven, "7"), (&eight, "8")] {
        rack.until_cached_for(file, id, "k", id);
    }

    rack.kill("switch", "control");
    // Meanwhile the switch answers.
    rack.until_cached_for(&seven, "7", "k", "7");
    rack.refuses(
        "switch",
        "shortstop tenant list",
        &["no controller answers", "shortstop control"],
    );
    rack.start_again("switch", "control");
    until("the switch is back", || {
        Some(rack.control_status()?["attached"] == true).filter(|is| *is)
    });
    assert_eq!((rack.own(7), rack.own(8)), before);
    rack.no_foreign_items();
    for (file, id) in [(&seven, "7"), (&eight, "8")] {
        rack.until_cached_for(file, id, "k", id);
    }
    // What is given on is cleared first.
    rack.manage("tenant change 7 --quota 1");
    rack.manage("tenant change 8 --quota 90");
    until("the pages have moved", || (rack.own(8).len() == 90).then_some(()));
    assert_eq!(rack.own(7).len(), 1);
    rack.no_foreign_items();
    rack.until_cached_for(&eight, "8", "k", "8");
}

#[test]
fn wrong_requests_are_refused_in_one_line_that_names_them() {
    needs_root();
    let rack = Rack::up(Kind::Kernel);
    rack.tenant(7, "--name shop --quota 8");
    rack.tenant(8, "--name blog --quota 2");
    let (sevens, eights) = (rack.own(7), rack.own(8));
    let file = |name: &str, text: &str| std::fs::write(rack.lab.dir().join(name), text).unwrap();
    file("bad.toml", "[[switch]]\nid = 1\n[[link]]\na = 1\nb =\n");
    for (line, expected) in [
        ("tenant show 99", &["no tenant 99"][..]),
        ("tenant change 99 --quota 1", &["no tenant 99"]),
        ("tenant remove 99", &["no tenant 99"]),
        ("tenant rotate 99", &["no tenant 99"]),
        ("tenant rotate 99 --finish", &["no tenant 99"]),
        ("tenant credentials 99", &["no tenant 99"]),
        ("page list --tenant 99", &["no tenant 99"]),
        ("page ask 99 1", &["no tenant 99"]),
        ("page return 99 1/1", &["no tenant 99"]),
        ("page list --switch 9", &["no switch 9"]),
        ("page ask 7 500", &["tenant 7", "508 pages", "has 8", "86 on switch 1"]),
        ("page ask 7 100 --switch 1", &["100 of them on switch 1", "86 on switch 1"]),
        ("page ask 7 1 --switch 9", &["no switch 9"]),
        ("tenant change 8 --quota 500", &["tenant 8", "500", "86 on switch 1"]),
        ("tenant create --quota 500", &["quota of 500", "86 on switch 1"]),
        ("page return 7 1/96", &["1/96", "does not exist", "96 pages"]),
        ("page return 7 2/1", &["no switch 2"]),
        ("page return 7 1/95", &["1/95", "free"]),
        ("page return 7 3-17", &["3-17", "3/17"]),
        ("page return 7", &["<PAGES>"]),
        ("page return 7 --count 99", &["99 pages", "quota is 8"]),
        ("tenant create --id 0", &["0 is reserved"]),
        ("tenant create --id 4294967295", &["4294967295 is reserved"]),
        ("tenant create --id 7", &["tenant 7 is there already"]),
        ("tenant create --name shop", &["\"shop\"", "tenant 7"]),
        ("tenant create --secret abc", &["secret", "32 hex digits"]),
        ("tenant create --policy best", &["\"best\"", "near-client"]),
        ("tenant create --discipline best", &["\"best\"", "none"]),
        ("tenant create --stores 10.9.9.9:7117", &["10.9.9.9:7117", "not one of"]),
        ("tenant create --clients tent", &["\"tent\"", "10.0.1.0/24"]),
        ("tenant change 7", &["nothing to change"]),
        ("tenant remove 0", &["tenant 0", "open_tenant"]),
        ("topology declare bad.toml", &["bad.toml", "line 5, column 4"]),
        ("topology declare absent.toml", &["absent.toml", "No such file"]),
    ] {
        rack.refuses("switch", &format!("shortstop {line}"), expected);
    }
    let of_eight = format!("shortstop page return 7 {}", eights[0]);
    rack.refuses("switch", &of_eight, &[&eights[0], "not held by tenant 7"]);
    let twice = format!("shortstop page return 7 {}", sevens[0]);
    rack.typed("switch", &twice);
    rack.refuses("switch", &twice, &[&sevens[0]]);
    let named_twice = format!("shortstop page return 7 {0} {0}", sevens[1]);
    rack.refuses("switch", &named_twice, &[&sevens[1], "twice"]);
    // The same by HTTP.
    for (request, status, error) in [
        ("/v1/tenants/99", "404", "there is no tenant 99"),
        ("/v1/nothing", "404", "/openapi.json"),
        ("/v1/pages?kind=bad", "400", "parameter kind"),
        ("/v1/tenants --json {}x", "400", "body"),
        ("/v1/tenants --json {\"quota\":500}", "409", "on switch 1"),
        ("/v1/tenants --data-raw {}", "415", "application/json"),
    ] {
        let (path, options) = request.split_once(' ').unwrap_or((request, ""));
        let options: Vec<&str> = options.split_terminator(' ').collect();
        let url = format!("http://127.0.0.1:7118{path}");
        let words = [&["curl", "-sS", "-w", "\n%{http_code}", &url], &options[..]].concat();
        let said = rack.done("switch", &words);
        let (body, code) = said.rsplit_once('\n').expect("two lines");
        let body: Value = serde_json::from_str(body).unwrap_or_else(|e| panic!("{e}: {said}"));
        let line = body["error"].as_str().expect("an error");
        assert!(
            code == status && line.contains(error) && line.lines().count() == 1,
            "{request}: {said}"
        );
    }
    assert_eq!(rack.own(8), eights);
}
