//! What a page gives its reader to do, in order: files to write, and commands to type.
//!
//! - A `toml` block is a file. The sentence before it names it: the last code span that ends in
//!   `.toml`.
//! - Each line of an `sh` block is typed; one that ends in a backslash goes on in the next. A
//!   comment line that begins with one of the [`PLACES`] says where the lines below it are typed.
//! - In a `console` block lines behind `$ ` or `# ` are typed, and those below are what the command
//!   prints; `...` stands for anything.
//! - A `text` block, or one of another kind, is only looked at.

use std::{fs, path::Path};

/// How a comment begins that names the machine on which one types what follows.
pub const PLACES: &[(&str, &str)] = &[
    ("# Beside the first Redis", "store1"),
    ("# Beside the second Redis", "store2"),
    ("# Beside a store's memcached", "store1"),
    ("# On the switch", "switch"),
    ("# On the first of three controllers", "control"),
    ("# On switch 1", "switch1"),
    ("# On switch 2", "switch2"),
    ("# On switch 3", "switch3"),
    ("# Where the controller runs", "control"),
    ("# From a client", "client"),
    ("# Beside the application", "client"),
];

/// One thing to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// To write a file.
    File {
        /// Its name, absolute or in the folder that one types in.
        name: String,
        /// What it has.
        text: String,
    },
    /// To type a command.
    Line {
        /// On which machine, if the page says so.
        place: Option<&'static str>,
        /// The command, with continued lines joined.
        text: String,
        /// What the page shows as its output.
        shown: Option<String>,
    },
}

/// The text of a page, named from the project's folder.
pub fn text(page: &str) -> String {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::read_to_string(project.join(page)).unwrap_or_else(|e| panic!("{page}: {e}"))
}

/// The steps of a page.
pub fn steps(text: &str) -> Vec<Step> {
    let (mut steps, mut prose) = (vec![], String::new());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(kind) = line.strip_prefix("```") else {
            prose += line;
            prose.push('\n');
            continue;
        };
        let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        match kind {
            "toml" => steps.extend(file(&prose, &block)),
            "sh" => steps.extend(commands(&block)),
            "console" => steps.extend(dialogue(&block)),
            _ => {}
        }
        prose.clear();
    }
    steps
}

fn file(prose: &str, block: &[&str]) -> Option<Step> {
    let paragraph = prose.trim_end().rsplit("\n\n").next()?;
    let spans = paragraph.split('`').skip(1).step_by(2);
    let name = spans.filter(|span| span.ends_with(".toml")).last()?;
    Some(Step::File { name: name.into(), text: block.join("\n") + "\n" })
}

fn commands(block: &[&str]) -> Vec<Step> {
    let (mut steps, mut place, mut text) = (vec![], None, String::new());
    for line in block {
        if line.starts_with('#') {
            let named = PLACES.iter().find(|(begin, _)| line.starts_with(begin));
            place = named.map_or(place, |(_, machine)| Some(*machine));
        } else if let Some(part) = line.strip_suffix('\\') {
            text += part;
        } else {
            let text = std::mem::take(&mut text) + line.trim_start();
            steps.push(Step::Line { place, text, shown: None });
        }
    }
    steps
}

fn dialogue(block: &[&str]) -> Vec<Step> {
    let (mut steps, mut place) = (vec![], None);
    for line in block {
        if let Some((_, machine)) = PLACES.iter().find(|(begin, _)| line.starts_with(begin)) {
            place = Some(*machine);
        } else if let Some(typed) = line.strip_prefix("$ ").or(line.strip_prefix("# ")) {
            steps.push(Step::Line { place, text: typed.into(), shown: None });
        } else if let Some(Step::Line { shown, .. }) = steps.last_mut() {
            *shown.get_or_insert_default() += &format!("{line}\n");
        }
    }
    steps
}

/// Whether an output is as a page shows it. Blanks at the ends of lines do not matter; `...` stands
/// for anything in a line, and a line of nothing else for any number of lines.
pub fn is_as_shown<'a>(said: &'a str, shown: &'a str) -> bool {
    fn lines_match(said: &[&str], shown: &[&str]) -> bool {
        match (said, shown) {
            (_, []) => said.is_empty(),
            (_, ["...", rest @ ..]) => (0..=said.len()).any(|n| lines_match(&said[n..], rest)),
            ([first, said @ ..], [pattern, shown @ ..]) => {
                line_matches(first, pattern) && lines_match(said, shown)
            }
            ([], _) => false,
        }
    }
    let lines = |text: &'a str| text.trim_end().lines().map(str::trim_end).collect::<Vec<&str>>();
    lines_match(&lines(said), &lines(shown))
}

fn line_matches(said: &str, pattern: &str) -> bool {
    match pattern.split_once("...") {
        None => said == pattern,
        Some((begin, rest)) => said.strip_prefix(begin).is_some_and(|left| {
            let ends = left.char_indices().map(|(at, _)| at).chain([left.len()]);
            ends.into_iter().any(|at| line_matches(&left[at..], rest))
        }),
    }
}

#[test]
fn a_page_is_read_as_its_reader_would() {
    let page = "Give `a.toml`, as in `b.toml`:\n\n```toml\nx = 1\n```\n\nThen\n\n```sh\n\
        # On the switch, say\na \\\n    b\n# of no place\nc\n```\n\n```console\n# From a client\n\
        $ d\n1\n# e\n```\n\n\
        Without a name:\n\n```toml\ny = 2\n```\n\n```text\nnothing\n```\n";
    let line = |place, text: &str, shown: Option<&str>| Step::Line {
        place,
        text: text.into(),
        shown: shown.map(str::to_owned),
    };
    let expected = [
        Step::File { name: "b.toml".into(), text: "x = 1\n".into() },
        line(Some("switch"), "a b", None),
        line(Some("switch"), "c", None),
        line(Some("client"), "d", Some("1\n")),
        line(Some("client"), "e", None),
    ];
    assert_eq!(steps(page), expected);
}

#[test]
fn three_dots_stand_for_anything() {
    for (said, shown, is_it) in [
        ("version 1\n", "version 1", true),
        ("version 2\n", "version 1", false),
        ("a\nb\nc\n", "a\n...\nc", true),
        ("a\nc\n", "a\n...\nc", true),
        ("a\nb\n", "a\n...\nc", false),
        ("took 12 us, from store", "took ... us, from ...", true),
        ("took 12 ms, from store", "took ... us, from ...", false),
        ("", "...", true),
        ("more\n", "", false),
    ] {
        assert_eq!(is_as_shown(said, shown), is_it, "{said:?} as {shown:?}");
    }
}
