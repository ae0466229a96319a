//! What tenants share, as `docs/security.md` lists it, beside what `shortstop-lab run hostile`
//! attacks.

use std::collections::BTreeSet;

use disciplines_experiments::OfThisBuild;
use experiments::tenants::Neighbours;
use load::Attack;

/// How a row's last cell begins if no packet of a tenant can fill the table; why follows.
const NO_PACKET: &str = "no packet of a tenant: ";
/// So few rows may say that.
const MOST_WITHOUT: usize = 2;

/// The cells of each row of the table below this heading.
fn rows(page: &str, heading: &str) -> Vec<Vec<String>> {
    let (_, below) = page.split_once(heading).expect("the heading is there");
    let lines = below.lines().skip_while(|line| !line.starts_with('|'));
    let rows = lines.take_while(|line| line.starts_with('|')).skip(2);
    let cells = |row: &str| row.trim_matches('|').split('|').map(|c| c.trim().into()).collect();
    rows.map(cells).collect()
}

/// What stands between backticks.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

#[test]
fn every_table_that_tenants_share_is_attacked() {
    let page = include_str!("../../../docs/security.md");
    let rows = rows(page, "\n## Shares of what tenants share\n");
    assert!(rows.len() > 15, "{rows:?}");
    let own = OfThisBuild::all().into_iter().flat_map(|neighbour| neighbour.attacks).copied();
    let known: BTreeSet<&str> = Attack::ALL.map(Attack::name).into_iter().chain(own).collect();
    let (mut named, mut without) = (BTreeSet::new(), 0);
    for row in &rows {
        let [table, _, _, attacks] = row.as_slice() else {
            panic!("{row:?}: four cells are expected, the last with attacks");
        };
        let of_row: BTreeSet<&str> = quoted(attacks).collect();
        let why = attacks.strip_prefix(NO_PACKET).is_some_and(|why| !why.is_empty());
        without += usize::from(why);
        assert_eq!(of_row.is_empty(), why, "{table}: an attack, or {NO_PACKET:?} and why");
        let unknown: Vec<_> = of_row.difference(&known).collect();
        assert!(unknown.is_empty(), "{table}: no attack of {unknown:?}");
        named.extend(of_row);
    }
    let nowhere: Vec<_> = known.difference(&named).collect();
    assert!(nowhere.is_empty(), "no row names {nowhere:?}");
    assert!(without <= MOST_WITHOUT, "{without} rows that nothing attacks");
}

/// A run in which some attack was not sent has failed.
#[test]
fn every_attack_has_to_be_sent() {
    let file: toml::Table = toml::from_str(experiments::HOSTILE).unwrap();
    let claims = file["claims"].as_table().unwrap();
    let own = OfThisBuild::all().into_iter().flat_map(|neighbour| neighbour.attacks).copied();
    for name in Attack::ALL.map(Attack::name).into_iter().chain(own) {
        assert!(claims.contains_key(&format!("attacks_sent_{name}")), "{name}");
    }
    for neighbour in OfThisBuild::all() {
        let name = format!("victim_{}_share", neighbour.operations);
        assert!(claims.contains_key(&name), "{name}");
    }
}
