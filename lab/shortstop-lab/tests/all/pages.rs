//! Every command that a page shows is one that the programs take. Nothing is carried out: words are
//! parsed, and no more.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use clap::{CommandFactory, Parser, error::ErrorKind};

use crate::programs::lab;

/// The project's folder.
fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The Markdown files at the top, and those of some folders, each with its text.
fn pages() -> Vec<(PathBuf, String)> {
    let mut pages = vec![];
    let mut folders = vec![project(), project().join("docs"), project().join("disciplines")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() && folder != project() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "md") {
                let text = fs::read_to_string(&path).expect("a page");
                pages.push((path, text));
            }
        }
    }
    pages
}

/// What a page shows to be typed, and what it only mentions.
#[derive(Default)]
struct Shown {
    /// The text of its `sh` blocks, and what stands behind the prompts of its `console` blocks.
    typed: String,
    /// Its code spans.
    mentioned: Vec<String>,
}

impl Shown {
    fn of(page: &str) -> Shown {
        let mut shown = Shown::default();
        let mut prose = String::new();
        let mut block = None;
        for line in page.lines() {
            match (line.strip_prefix("```"), block) {
                (Some(kind), None) => block = Some(kind),
                (Some(_), Some(_)) => block = None,
                (None, Some("sh")) => shown.typed += &format!("{line}\n"),
                (None, Some("console")) => {
                    let typed = line.strip_prefix("$ ").or(line.strip_prefix("# "));
                    shown.typed += &format!("{}\n", typed.unwrap_or_default());
                }
                (None, Some(_)) => {}
                (None, None) => prose += &format!("{line}\n"),
            }
        }
        for paragraph in prose.split("\n\n") {
            let spans = paragraph.split('`').skip(1).step_by(2);
            shown.mentioned.extend(spans.map(|s| s.replace('\n', " ")));
        }
        shown
    }
}

/// The commands of a shell text, each as its words: without comments, redirections, and what joins
/// commands.
fn commands(text: &str) -> Vec<Vec<String>> {
    let mut commands = vec![vec![]];
    for line in text.replace("\\\n", " ").lines() {
        commands.push(vec![]);
        let mut rest = line.trim_start();
        while let Some(first) = rest.chars().next().filter(|c| *c != '#') {
            if "();|&".contains(first) {
                commands.push(vec![]);
                rest = rest[1..].trim_start();
                continue;
            }
            let (word, after) = word(rest);
            rest = after.trim_start();
            if word.trim_start_matches('2').starts_with('>') {
                // Its file is the next word, unless it stands in this one.
                if word.ends_with('>') {
                    rest = self::word(rest).1.trim_start();
                }
            } else {
                commands.last_mut().expect("one").push(word);
            }
        }
    }
    commands.retain(|words| !words.is_empty());
    commands
}

/// The first word of a shell text without its quotes, and what follows it.
fn word(text: &str) -> (String, &str) {
    let mut word = String::new();
    let mut quote = None;
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => word.push(c),
            None if depth == 0 && (c.is_whitespace() || ";|&)".contains(c)) => {
                return (word, &text[at..]);
            }
            None if c == '\'' || c == '"' => quote = Some(c),
            None => {
                depth += i32::from(c == '(') - i32::from(c == ')');
                word.push(c);
            }
        }
    }
    (word, "")
}

/// The program that a command runs and its words from there on, if it is one of ours.
fn of_ours(words: &[String]) -> Option<(&'static str, &[String])> {
    let words = match words.first().map(String::as_str) {
        Some("sudo") => &words[1..],
        _ => words,
    };
    let (first, words) = words.split_first()?;
    match Path::new(first).file_name()?.to_str()? {
        "shortstop" => Some(("shortstop", words)),
        "shortstop-lab" => Some(("shortstop-lab", words)),
        "make" => Some(("make", words)),
        _ => None,
    }
}

/// Why a program does not take these words. `whole`: a command as it is typed; else only its
/// subcommands and options must exist.
fn refusal(program: &str, words: &[String], whole: bool) -> Option<String> {
    match program {
        "shortstop" => {
            let line = [program.to_string()].into_iter().chain(words.to_vec());
            let error = shortstop::cmd::Cli::try_parse_from(line).err()?;
            let unknown = [ErrorKind::UnknownArgument, ErrorKind::InvalidSubcommand];
            let is_wrong = match whole {
                true => error.exit_code() != 0,
                false => unknown.contains(&error.kind()),
            };
            is_wrong.then(|| error.to_string())
        }
        "shortstop-lab" => {
            // With `--help` the program parses the words before it, and does nothing. The words
            // behind `--` are another program's.
            let own = words.iter().take_while(|word| *word != "--");
            let mut own: Vec<&str> = own.map(String::as_str).collect();
            let unknown_experiment = match *own {
                ["run" | "compare", name, ..] => !is_experiment(name),
                _ => false,
            };
            own.push("--help");
            let output = lab(&own).output().expect("it runs");
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let is_wrong = match whole {
                true => !output.status.success(),
                false => ["unexpected argument", "unrecognized subcommand"]
                    .iter()
                    .any(|wrong| said.contains(wrong)),
            };
            (is_wrong || unknown_experiment).then_some(said)
        }
        _ => {
            let makefile = fs::read_to_string(project().join("Makefile")).expect("the Makefile");
            let target = words.iter().find(|word| !word.contains('='))?;
            let known =
                makefile.lines().any(|line| line.strip_suffix(':') == Some(target.as_str()));
            (!known).then(|| "no such target in the Makefile".into())
        }
    }
}

/// Whether an experiment has this name; one in capitals stands for any.
fn is_experiment(name: &str) -> bool {
    // Their files are read once: that takes a tenth of a second.
    static NAMES: LazyLock<Vec<String>> = LazyLock::new(|| {
        let all = disciplines_experiments::experiments().expect("the experiments");
        all.into_iter().map(|experiment| experiment.name).collect()
    });
    name.chars().all(|c| c.is_ascii_uppercase()) || NAMES.iter().any(|known| known == name)
}

#[test]
fn every_command_of_every_page_is_one_that_the_programs_take() {
    let mut checked = BTreeSet::new();
    for (page, text) in pages() {
        let shown = Shown::of(&text);
        let typed = commands(&shown.typed).into_iter().map(|words| (words, true));
        let is_whole = |span: &&String| !span.contains(['|', '[', '…']) && !span.contains("...");
        let mentioned = shown.mentioned.iter().filter(is_whole);
        let mentioned = mentioned.flat_map(|span| commands(span)).map(|words| (words, false));
        for (words, whole) in typed.chain(mentioned) {
            let Some((program, own)) = of_ours(&words) else { continue };
            if checked.insert((words.clone(), whole)) {
                let refused = refusal(program, own, whole);
                assert_eq!(refused, None, "{}: {}", page.display(), words.join(" "));
            }
        }
    }
    assert!(checked.len() > 100, "the pages show {} commands", checked.len());
}

#[test]
fn words_are_those_that_a_shell_would_give() {
    let text = "sudo a/b \\\n  -c 'd e' > f   # g\n(umask 077; h i 2>> j)\nk $(l m) \"n\"";
    let expected: [&[&str]; 4] =
        [&["sudo", "a/b", "-c", "d e"], &["umask", "077"], &["h", "i"], &["k", "$(l m)", "n"]];
    assert_eq!(commands(text), expected);
}

/// What the containers of the manifests of a file are started with, and asked by their probes: the
/// words of each, which stand as in JSON.
fn started_by(manifests: &str) -> Vec<Vec<String>> {
    let lists = manifests.split("command: [").skip(1);
    let list = |text: &str| {
        let (list, _) = text.split_once(']').expect("the end of a command");
        serde_json::from_str(&format!("[{list}]")).unwrap_or_else(|error| panic!("{error}: {list}"))
    };
    lists.map(list).collect()
}

/// Asked for no name, `switch status` has nothing to complain of where there is no switch.
#[test]
fn a_node_without_its_switch_is_not_ready() {
    for file in ["daemonset.yaml", "soft-daemonset.yaml"] {
        let path = project().join("docs/kubernetes").join(file);
        let text = fs::read_to_string(path).expect("manifests");
        let started = started_by(&text);
        let [switch, asked] = &started[..] else { panic!("{file}: {started:?}") };
        assert!(!switch[2].contains("--name"), "{file}: {switch:?}");
        let name = switch_name();
        assert_eq!(asked[..], ["shortstop", "switch", "status", "--name", &name], "{file}");
        assert!(text.contains("\n  minReadySeconds: "), "{file}: ready at once is no sign");
    }
}

/// That of a switch which is given none.
fn switch_name() -> String {
    let program = shortstop::cmd::Cli::command();
    let switch = program.find_subcommand("switch").expect("a command");
    let name = switch.get_arguments().find(|option| option.get_id() == "name");
    let default = name.and_then(|name| name.get_default_values().first()).expect("a default");
    default.to_string_lossy().into_owned()
}

#[test]
fn every_command_of_the_manifests_is_one_that_the_program_takes() {
    let mut checked = 0;
    for entry in fs::read_dir(project().join("docs/kubernetes")).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("manifests");
        // What the kubelet puts in, and what the shell reads on the node.
        let text = text.replace("$(HOST_IP)", "10.0.2.1");
        let text = text.replace("\\\"$(cat /etc/shortstop/switch-id)\\\"", "3");
        for words in started_by(&text) {
            let words = match &words[..] {
                [shell, option, line] if shell == "sh" && option == "-c" => {
                    let line = line.strip_prefix("exec ").expect("a program in the shell's place");
                    commands(line).remove(0)
                }
                _ => words,
            };
            let Some((program, own)) = of_ours(&words) else {
                assert!(words[0].starts_with("redis-"), "{}: {words:?}", path.display());
                continue;
            };
            let refused = refusal(program, own, true);
            assert_eq!(refused, None, "{}: {words:?}", path.display());
            checked += 1;
        }
    }
    assert!(checked > 6, "{checked} commands");
}
