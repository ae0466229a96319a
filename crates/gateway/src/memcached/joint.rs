//! Commands of keys that several servers have, or of which some are here: each server is asked for
//! its own, and the answers become one, as a single memcached would give it.

use futures_util::future::join_all;
use memcached::AskedValues;

use super::servers::Servers;

/// The values of some keys, in their order, of which `here` are known; the others are asked for.
/// `grows` is told of so many bytes of them, and says whether there is room.
///
/// # Errors
/// What the client is told instead, without the end of the line.
pub(super) async fn values(
    servers: &Servers,
    asked: &AskedValues<'_>,
    names: &[&[u8]],
    here: Vec<Option<Vec<u8>>>,
    grows: impl Fn(usize) -> bool,
) -> Result<Vec<u8>, String> {
    let mut by_server: Vec<(usize, Vec<usize>)> = vec![];
    for (at, name) in names.iter().enumerate().filter(|(at, _)| here[*at].is_none()) {
        let server = servers.of(name);
        match by_server.iter_mut().find(|(other, _)| *other == server) {
            Some((_, places)) => places.push(at),
            None => by_server.push((server, vec![at])),
        }
    }
    let ask = async |(server, places): &(usize, Vec<usize>)| {
        let mut line = vec![];
        asked.ask(places.iter().map(|at| names[*at]), &mut line);
        servers.asked(*server, &line, &grows, asked.only_reads).await
    };
    let answers = join_all(by_server.iter().map(ask)).await;
    let failed = |why: &str| match asked.only_reads {
        true => format!("SERVER_ERROR {why}"),
        false => format!("SERVER_ERROR outcome unknown: {why}; other stores may have done it"),
    };
    let whole = answers.iter().map(|answer| answer.as_deref().map_err(|why| failed(why)));
    let whole: Vec<&[u8]> = whole.collect::<Result<_, _>>()?;
    let mut found: Vec<Option<&[u8]>> = here.iter().map(Option::as_deref).collect();
    for ((_, places), answer) in by_server.iter().zip(whole) {
        let mut places = places.iter().copied();
        for value in memcached::values_in(answer) {
            let (name, value) = value.map_err(|line| {
                let said = String::from_utf8_lossy(line);
                match said.strip_prefix("SERVER_ERROR ") {
                    Some(why) if !why.starts_with("outcome unknown") => failed(why),
                    _ => said.into_owned(),
                }
            })?;
            // Of those that were asked for, in their order, some are missing, and no others come.
            match places.find(|at| names[*at] == name) {
                Some(at) => found[at] = Some(value),
                None => return Err(failed("a store has answered for another key")),
            }
        }
    }
    Ok(found.into_iter().flatten().collect::<Vec<_>>().concat())
}
