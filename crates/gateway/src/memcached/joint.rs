//! Commands of keys that several servers have, or of which some are here: each server is asked for
//! its own, and the answers become one, as a single memcached would give it.

use futures_util::future::join_all;
use memcached::AskedValues;

use super::servers::Servers;

/// Bytes of the values that are asked for at once.
const MOST_BYTES: usize = 64 << 20;

/// The values of some keys, in their order, of which `here` are known; the others are asked for.
///
/// # Errors
/// What the client is told instead, without the end of the line.
pub(super) async fn values(
    servers: &Servers,
    asked: &AskedValues<'_>,
    names: &[&[u8]],
    mut here: Vec<Option<Vec<u8>>>,
) -> Result<Vec<u8>, String> {
    let mut by_server: Vec<(usize, Vec<usize>)> = vec![];
    for (at, name) in names.iter().enumerate() {
        if here[at].is_some() {
            continue;
        }
        let server = servers.of(name);
        match by_server.iter_mut().find(|(other, _)| *other == server) {
            Some((_, places)) => places.push(at),
            None => by_server.push((server, vec![at])),
        }
    }
    let ask = async |(server, places): &(usize, Vec<usize>)| {
        let mut line = vec![];
        asked.ask(places.iter().map(|at| names[*at]), &mut line);
        servers.asked(*server, &line, MOST_BYTES, asked.only_reads).await
    };
    let answers = join_all(by_server.iter().map(ask)).await;
    for ((_, places), answer) in by_server.iter().zip(answers) {
        let answer = answer.map_err(|why| format!("SERVER_ERROR {why}"))?;
        let mut places = places.iter().copied();
        for value in memcached::values_in(&answer) {
            let (name, value) = value.map_err(|line| String::from_utf8_lossy(line).into_owned())?;
            // Of those that were asked for, in their order, some are missing, and no others come.
            match places.find(|at| names[*at] == name) {
                Some(at) => here[at] = Some(value.to_vec()),
                None => return Err("SERVER_ERROR a store has answered for another key".into()),
            }
        }
    }
    Ok(here.into_iter().flatten().flatten().collect())
}
