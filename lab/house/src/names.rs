//! Names of types that are no nouns: who reads `Seen` asks who saw what.

use crate::{finding::Finding, tree::Tree};

/// Participles, pronouns, prepositions, adverbs and verbs that were types' names once. Nouns that
/// look like them (`Feed`, `Setting`) are why this is a list of words and not of endings.
const WORDS: &str = "
    About Aimed Alone Applied Around Asked Asking At Attached Away Backed Before Begun Beside Borrowed Broken Came Checked Churning
    Closed Compared Computed Copied Copying Counted Counting Declared Delayed Do Doing Done Down Drawn Due Elsewhere Embedded
    Emulated Ended Expected Failed Far Filled Followed Following Forgetting Found Generates Generating Given Going Gone Got
    Guaranteed Happened Heard Held Here Holds Hunted Joined Joining Kept Keyed Known Last Later Latest Learnt Leaving Left Lent
    Loaded Longest Lost Made Making Mapped Measured Mine Mixed Moved Named Near Never Newest Noting Nowhere Of Old Only Opened
    Other Others Ours Out Outside Over Owned Parked Passed Pending Placed Planned Populated Published Pulled Raised Ran Recent
    Recorded Refused Registered Remembered Removed Removing Rerouted Reserved Rewired Running Said Saved Saving Says Seated Seen
    Sending Sent Served Serving Settled Shared Some Stands Steered Streamed Submitted Such Taken Theirs Then Through Timed To Told
    Under Unfit Unheard Untold Up Used Verified Waiting Wanted Wanting Watched What Where Which Who Whom Whose Writing Written
";

/// Each type whose name is one of the words, or whose last word is.
pub fn check(tree: &Tree) -> anyhow::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for (path, facts) in tree.rust() {
        for found in facts.types.iter().filter(|found| !is_noun(&found.name)) {
            findings.push(Finding {
                path: path.to_owned(),
                line: found.line,
                text: format!(
                    "the type's name `{}` is no noun; name what a value of it is",
                    found.name
                ),
            });
        }
    }
    Ok(findings)
}

fn is_noun(name: &str) -> bool {
    let last = name.rfind(|letter: char| letter.is_ascii_uppercase());
    let last = &name[last.unwrap_or(0)..];
    !WORDS.split_whitespace().any(|word| word == last)
}
