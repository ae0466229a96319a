//! The command line as the program has it: nothing runs.

use chain_commands::COORD;

/// The words behind `shortstop`.
fn read(words: &str) -> Result<(), clap::Error> {
    read_within(100, words)
}

/// Likewise on a terminal with so many columns.
fn read_within(columns: usize, words: &str) -> Result<(), clap::Error> {
    let program = clap::Command::new("shortstop").subcommand(COORD.define());
    let mut program = program.term_width(columns);
    let words = format!("shortstop {words}");
    let matches = program.try_get_matches_from_mut(words.split(' '))?;
    let (name, of_command) = matches.subcommand().expect("a subcommand");
    assert_eq!(name, COORD.name);
    COORD.read(of_command).map(drop)
}

#[test]
fn every_command_has_help_with_an_example() {
    for command in [
        "coord",
        "coord get",
        "coord put",
        "coord cas",
        "coord delete",
        "coord list",
        "coord lock",
        "coord elect",
        "coord watch",
    ] {
        let help = read(&format!("{command} --help")).unwrap_err().to_string();
        assert!(help.contains("Example"), "{command}: no example in\n{help}");
        let own = format!("  shortstop {command}");
        assert!(help.contains(&own), "{command}: not its own\n{help}");
        // Where it is wrapped, no shell takes it.
        let narrow = read_within(80, &format!("{command} --help")).unwrap_err().to_string();
        let examples = |help: &str| help[help.find("Example").unwrap()..].to_string();
        assert_eq!(examples(&narrow), examples(&help), "{command}: wrapped at 80 columns");
    }
}

#[test]
fn words_are_read_and_what_is_wrong_is_named() {
    assert!(read("coord get --cluster shop.toml --tenant 7 k").is_ok());
    assert!(read("coord get --relaxed --cluster shop.toml --tenant 7 k").is_ok());
    for (words, named) in [
        ("coord get k", "--cluster <FILE>"),
        ("coord get --cluster shop.toml --tenant x k", "--tenant"),
        ("coord get --cluster shop.toml --tenant 7 --json --raw k", "--raw"),
        ("coord lock --cluster shop.toml --tenant 7 --lease soon k", "a number and a unit"),
    ] {
        let error = read(words).unwrap_err().to_string();
        assert!(error.contains(named), "{words}: {error}");
    }
}
