//! Halves of disciplines beside the programs.

use api::proto::{Configurations, HalfMessage};
use decide::{AgentAction, AgentHalf, Configuration, Item, Row};
use wire::{Header, Op, Packet, Secret};

use super::*;

/// Tells the controller all that it is told.
pub(super) struct Teller;

fn report(tenant: u32, line: String) -> AgentAction {
    let report = line.into();
    AgentAction::Report { tenant, report }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into()
}

impl AgentHalf for Teller {
    fn configured(
        &mut self,
        _: u64,
        tenant: u32,
        _: u32,
        _: &Configuration,
        out: &mut Vec<AgentAction>,
    ) {
        let key = [tenant.to_ne_bytes(), 0u32.to_ne_bytes()].concat().into();
        let map = "trial_notes";
        let (from, most) = (0, 1);
        out.push(report(tenant, "configured".into()));
        out.push(AgentAction::Look { map, key });
        out.push(AgentAction::Walk { tenant, from, most });
    }

    fn row(&mut self, _: u64, _: &str, _: &[u8], value: Option<&[u8]>, out: &mut Vec<AgentAction>) {
        let found = value.map(|value| value[0]);
        out.push(report(CHAIN, format!("row {found:?}")));
    }

    fn item(&mut self, _: u64, item: Item<'_>, out: &mut Vec<AgentAction>) {
        let record = item.record.map_or("(busy)".into(), text);
        let line = format!("item {} {record}", text(item.key));
        out.push(report(item.tenant, line));
    }

    fn items_end(&mut self, _: u64, tenant: u32, next: Option<u32>, out: &mut Vec<AgentAction>) {
        let most = 1;
        let more = next.map(|from| AgentAction::Walk { tenant, from, most });
        out.push(more.unwrap_or_else(|| report(tenant, "end".into())));
    }

    fn told(&mut self, _: u64, tenant: u32, message: &[u8], out: &mut Vec<AgentAction>) {
        let header = Header { tenant, ..Header::new(Op::FetchRequest) };
        out.push(report(tenant, format!("told {}", text(message))));
        out.push(AgentAction::Send {
            to: "10.0.9.1:7117".parse().unwrap(),
            header,
            key: Key::from_static(b"k"),
            value: Key::new(),
        });
    }

    fn left(&mut self, _: u64, tenant: u32, out: &mut Vec<AgentAction>) {
        out.push(report(tenant, "left".into()));
    }
}

impl Switch {
    /// What the half reported since the last time.
    fn reported(&mut self) -> Vec<String> {
        let body = |body| match body {
            Body::Report(said) => Some((said.tenant, text(&said.report))),
            _ => None,
        };
        let all = self.heard().into_iter().filter_map(body);
        all.map(|(tenant, line)| format!("{tenant} {line}")).collect()
    }
}

#[test]
fn a_half_sees_rows_and_items_once_its_configuration_is_in_force() {
    let mut switch = Switch::start();
    for name in ["a", "b", "busy"] {
        switch.change(&key(CHAIN, name), &given(b"record"));
    }
    // Some program has it, and does not give it back.
    switch.lock_item(&key(CHAIN, "busy"));
    switch.heard();
    let mut value = vec![0; 24];
    value[0] = 9;
    let row = Row {
        map: "trial_notes".into(),
        key: [CHAIN.to_ne_bytes(), 0u32.to_ne_bytes()].concat().into(),
        value: value.into(),
    };
    let configuration = Configuration { rows: vec![row], ..Configuration::default() };
    switch.hear(to_switch::Body::Configurations(Configurations {
        term: 1,
        tenants: vec![convert::configuration_to(CHAIN, 1, &configuration)],
    }));
    let mut reported = switch.reported();
    assert_eq!(reported.remove(0), format!("{CHAIN} configured"));
    assert_eq!(reported.remove(0), format!("{CHAIN} row Some(9)"));
    assert_eq!(reported.pop(), Some(format!("{CHAIN} end")));
    reported.sort();
    let items = ["a record", "b record", "busy (busy)"].map(|of| format!("{CHAIN} item {of}"));
    assert_eq!(reported, items);
}

#[test]
fn a_half_is_told_and_sends_in_the_systems_name() {
    let mut switch = Switch::start();
    let message = HalfMessage {
        seq: 5,
        discipline: "trial".into(),
        tenant: CHAIN,
        message: Key::from_static(b"hello"),
    };
    switch.hear(to_switch::Body::Message(message));
    let heard = switch.heard();
    let acked = |body: &Body| matches!(body, Body::Ack(ack) if ack.seq == 5);
    assert!(heard.iter().any(acked), "{heard:?}");
    let sent = switch.sent.0.borrow();
    let (to, datagram) = sent.last().unwrap();
    assert_eq!(to.port(), 7117);
    let packet = Packet::decode(datagram).unwrap();
    assert!(packet.tag_is_valid(&Secret::NONE));
    let hash = Secret(hex(CHAIN)).key_hash(CHAIN, b"k");
    assert_eq!((packet.header.tenant, packet.header.key_hash), (CHAIN, hash));
}

/// The secret that the setup gives a tenant.
fn hex(tenant: u32) -> [u8; 16] {
    let mut secret = [0; 16];
    secret[12..].copy_from_slice(&tenant.to_be_bytes());
    secret
}

#[test]
fn an_item_goes_only_if_it_is_as_it_was_seen() {
    let mut switch = Switch::start();
    let item = key(CHAIN, "a");
    assert_eq!(switch.change(&item, &given(b"record")), Outcome::Done);
    let remove_if = |begins: &'static [u8]| Change::RemoveIf(Key::from_static(begins));
    assert_eq!(switch.change(&item, &remove_if(b"rex")), Outcome::Changed);
    assert_eq!(switch.change(&item, &remove_if(b"record and more")), Outcome::Changed);
    assert_eq!(switch.change(&item, &remove_if(b"rec")), Outcome::Done);
    assert_eq!(switch.change(&item, &remove_if(b"rec")), Outcome::Done);
    assert_eq!(switch.change(&item, &given(b"again")), Outcome::Done);
}
