//! Whose words are of one cluster.
//!
//! An address may be given to a node of another cluster, whose config epochs may be higher: put
//! together with those of this one they would make its masters the owners of slots here. What
//! tells clusters apart is the names of their nodes, which no two have in common.

use std::collections::BTreeSet;

use super::{NodeAddress, NodeView, SlotMap};

/// What a node has said.
pub(super) struct HeardNode {
    pub at: NodeAddress,
    /// How many of the seeds it is: several addresses may be one node's.
    pub seeds: usize,
    pub view: NodeView,
}

impl SlotMap {
    /// Whether a node that says this is one of the same cluster: it names most of the masters that
    /// there were. Where there were only one or two, most may have been forgotten since; then all
    /// that have slots by now were nodes before. (A node may leave for another cluster with its
    /// name, and is one of the masters there.)
    pub(super) fn is_of(&self, view: &NodeView) -> bool {
        let is_named = |id: &str| view.nodes.iter().any(|node| node.id == id);
        let named = self.shards.iter().filter(|shard| is_named(&shard.id)).count();
        let mut masters = view.masters().peekable();
        named * 2 > self.shards.len()
            || masters.peek().is_some() && masters.all(|master| self.nodes.contains(&master.id))
    }
}

/// Those of the one cluster that is meant by so many seeds, before there is any map of it, and
/// where those of others are. Nodes are of one if they name a master with slots in common.
///
/// # Errors
/// Seeds are of several clusters, and most of them of none.
pub(super) fn of_one_cluster(
    heard: Vec<HeardNode>,
    seeds: usize,
) -> Result<(Vec<HeardNode>, Vec<NodeAddress>), String> {
    let mut clusters: Vec<(BTreeSet<String>, Vec<HeardNode>)> = vec![];
    for said in heard {
        let mut ids: BTreeSet<String> = said.view.masters().map(|node| node.id.clone()).collect();
        // It knows of no cluster: that is none.
        if ids.is_empty() {
            continue;
        }
        let mut nodes = vec![said];
        for (its_ids, its_nodes) in std::mem::take(&mut clusters) {
            if ids.is_disjoint(&its_ids) {
                clusters.push((its_ids, its_nodes));
            } else {
                ids.extend(its_ids);
                nodes.extend(its_nodes);
            }
        }
        clusters.push((ids, nodes));
    }
    let named = |nodes: &[HeardNode]| nodes.iter().map(|node| node.seeds).sum::<usize>();
    clusters.sort_by_key(|(_, nodes)| std::cmp::Reverse(named(nodes)));
    let mut clusters = clusters.into_iter().map(|(_, nodes)| nodes);
    let ours = clusters.next().unwrap_or_default();
    let others: Vec<HeardNode> = clusters.flatten().collect();
    let seed = |nodes: &[HeardNode]| {
        nodes.iter().find(|node| node.seeds > 0).map(|node| node.at.to_string())
    };
    match (seed(&ours), seed(&others)) {
        (Some(one), Some(other)) if named(&ours) * 2 <= seeds => Err(format!(
            "{one} and {other} are nodes of two Redis Clusters: expected nodes of one, or most of them"
        )),
        _ => Ok((ours, others.into_iter().map(|node| node.at).collect())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a node says: first its own line, then others, each a name, flags and slots.
    fn view(lines: &[(&str, &str, &str)]) -> NodeView {
        let line = |(at, (id, flags, slots)): (usize, &(&str, &str, &str))| {
            let own = if at == 0 { "myself," } else { "" };
            format!("{id} h:1@2 {own}{flags} - 0 0 1 connected {slots}\n")
        };
        let text: String = lines.iter().enumerate().map(line).collect();
        NodeView::parse(&text, "h").unwrap()
    }

    #[test]
    fn nodes_are_of_the_same_cluster_if_they_name_most_masters_of_before() {
        let three =
            [("a", "master", "0-9"), ("b", "master", "10-99"), ("c", "master", "100-16383")];
        let map = SlotMap::of(&[view(&three), view(&[three[1], three[0], three[2]])]).unwrap();
        let is = |lines: &[(&str, &str, &str)]| map.is_of(&view(lines));
        assert!(is(&three));
        // One that failed is known still, and another that came.
        assert!(is(&[("d", "master", "0-9"), ("a", "master,fail", ""), three[1]]));
        assert!(!is(&[("x", "master", "0-9"), ("y", "master", "10-16383")]));
        assert!(!is(&[("x", "master", "0-9"), ("c", "master", "10-16383")]), "it left for another");
        assert!(!is(&[("c", "master", "")]), "it was reset");
        // Most of them are forgotten at once.
        assert!(is(&[("c", "master", "0-16383")]));

        let pair = [("a", "master", "0-16383"), ("r", "slave", "")];
        let map = SlotMap::of(&[view(&pair)]).unwrap();
        assert!(map.is_of(&view(&[("r", "master", "0-16383")])), "it has its master's place");
        assert!(!map.is_of(&view(&[("r", "slave", ""), ("x", "master", "0-16383")])));
    }

    #[test]
    fn seeds_have_to_be_of_one_cluster_or_most_of_them() {
        let heard = |id: &str, seeds, ids: &[&str]| {
            let lines: Vec<_> = ids.iter().map(|id| (*id, "master", "0-9")).collect();
            let port = u16::from(id.as_bytes()[0]);
            HeardNode { at: NodeAddress { host: id.into(), port }, seeds, view: view(&lines) }
        };
        // a and d have no master in common, but through b.
        let ours = || [heard("a", 1, &["a", "b"]), heard("d", 1, &["c", "d"])].into_iter();
        let b = || heard("b", 0, &["b", "c"]);
        let foreign = || heard("x", 1, &["x"]);
        let names = |nodes: &[HeardNode]| {
            let mut names: Vec<&str> = nodes.iter().map(|one| &one.at.host[..]).collect();
            names.sort_unstable();
            names.concat()
        };
        let rows = [
            (ours().chain([b()]).collect::<Vec<_>>(), 2, Some(("abd", 0))),
            (ours().chain([b(), foreign()]).collect(), 3, Some(("abd", 1))),
            (vec![foreign()].into_iter().chain(ours()).chain([b()]).collect(), 3, Some(("abd", 1))),
            // Two of four; and who has not been heard may be of either.
            (ours().chain([b(), heard("x", 2, &["x"])]).collect(), 4, None),
            (vec![heard("a", 1, &["a"]), foreign()], 3, None),
            (vec![heard("a", 1, &["a"]), heard("x", 0, &["x"])], 1, Some(("a", 1))),
        ];
        for (at, (heard, seeds, expected)) in rows.into_iter().enumerate() {
            let found = of_one_cluster(heard, seeds);
            if let Err(why) = &found {
                assert!(why.contains("nodes of two Redis Clusters"), "{why}");
            }
            let found = found.ok().map(|(ours, others)| (names(&ours), others.len()));
            let expected = expected.map(|(ours, others)| (ours.to_string(), others));
            assert_eq!(found, expected, "row {at}");
        }
    }
}
