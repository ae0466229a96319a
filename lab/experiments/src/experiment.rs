//! An experiment: its file, with the parameters for each world and length of run, and the kind that
//! measures it. `shortstop-lab` lists, changes and runs experiments by this.

use std::collections::BTreeMap;

use anyhow::{Context, bail, ensure};
use lab::progress::Progress;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{
    Kind, Options, Report, Run, World, busy,
    claim::Claim,
    idle::Idle,
    kind::{Input, SWEEP},
    parts::Parts,
    run::{NeverCounts, Searches},
    sweep::Shape,
};

/// An experiment that this build knows: its file's text, and the kind that it is of.
#[derive(Clone, Copy)]
pub struct Definition {
    /// What it is, in TOML.
    pub toml: &'static str,
    /// Who measures it.
    pub kind: &'static Kind,
}

/// An experiment's file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    kind: String,
    title: String,
    #[serde(default)]
    runs: Vec<String>,
    #[serde(default)]
    runs_in_kernel: Vec<String>,
    #[serde(default)]
    params: toml::Table,
    #[serde(default)]
    quick: toml::Table,
    #[serde(default)]
    sim: toml::Table,
    #[serde(default)]
    sim_quick: toml::Table,
    #[serde(default)]
    claims: BTreeMap<String, Claim>,
    #[serde(default)]
    idle: Option<Idle>,
    sweep: Option<Shape>,
}

/// One experiment.
#[derive(Clone)]
pub struct Experiment {
    /// The name for `lab run`.
    pub name: String,
    /// One line for `lab list`.
    pub title: String,
    /// The discipline that is compared with `none`.
    pub discipline: String,
    /// Disciplines and programs that run beside the rig, by name.
    pub runs: Vec<String>,
    /// Those that run in the kernel's world only.
    pub runs_in_kernel: Vec<String>,
    kind: &'static Kind,
    /// Parameters of the full run.
    params: toml::Table,
    /// What differs under `--quick`.
    quick: toml::Table,
    /// What differs in the simulator in the full run.
    sim: toml::Table,
    /// What differs there under `--quick`, beside that.
    sim_quick: toml::Table,
    /// What has to come out, by its name in the summary.
    claims: BTreeMap<String, Claim>,
    /// Whether it is measured elsewhere than its file says, and may have no figure of that name.
    is_elsewhere: bool,
    /// What differs with its mechanism off, if its file says.
    idle: Option<Idle>,
    /// How it is measured and told, if it is a sweep.
    sweep: Option<Shape>,
}

impl Experiment {
    /// Reads an experiment that this build knows, about this discipline.
    ///
    /// # Errors
    /// What is wrong with its file, parameters included.
    pub fn of(definition: &Definition, discipline: &str) -> anyhow::Result<Experiment> {
        let file: File = toml::from_str(definition.toml).context("experiment file")?;
        let File { name, kind, .. } = &file;
        let known = definition.kind.name;
        ensure!(kind == known, "experiment {name}: kind = {kind:?}: registered as {known:?}");
        ensure!(
            file.sweep.is_none() || known == SWEEP,
            "experiment {name}: kind = {kind:?}: [sweep] is for kind = {SWEEP:?}"
        );
        if let Some(shape) = &file.sweep {
            shape.check().with_context(|| format!("experiment {name}"))?;
        }
        let experiment = Experiment {
            name: file.name,
            title: file.title,
            discipline: discipline.into(),
            runs: file.runs,
            runs_in_kernel: file.runs_in_kernel,
            kind: definition.kind,
            params: file.params,
            quick: file.quick,
            sim: file.sim,
            sim_quick: file.sim_quick,
            claims: file.claims,
            is_elsewhere: false,
            idle: file.idle,
            sweep: file.sweep,
        };
        let context = || format!("experiment {}", experiment.name);
        if let Some(idle) = &experiment.idle {
            idle.check().with_context(context)?;
        }
        for world in [World::Kernel, World::Sim] {
            for (quick, idle) in [(false, false), (true, false), (false, true), (true, true)] {
                let given = experiment.given(world, quick, idle);
                (experiment.kind.parameters)(&given).with_context(context)?;
            }
        }
        Ok(experiment)
    }

    /// Gives a parameter another value, in every kind of run. `path` may lead into a table, as
    /// `rack.keys` does; the value is as TOML has it, and what is no TOML is text.
    ///
    /// # Errors
    /// A parameter that does not exist or has the wrong type or range.
    pub fn set(&mut self, path: &str, value: &str) -> anyhow::Result<()> {
        let (outer, last) = path.rsplit_once('.').unwrap_or(("", path));
        let read = toml::from_str(&format!("value = {value}"));
        let read = read.ok().and_then(|mut t: toml::Table| t.remove("value"));
        let mut table = toml::Table::new();
        table.insert(last.into(), read.unwrap_or_else(|| value.into()));
        for name in outer.rsplit('.').filter(|name| !name.is_empty()) {
            table = toml::Table::from_iter([(name.into(), toml::Value::Table(table))]);
        }
        let idle = self.idle.as_mut().map(|idle| &mut idle.params);
        let others = [&mut self.quick, &mut self.sim, &mut self.sim_quick];
        for all in others.into_iter().chain(idle).chain([&mut self.params]) {
            overlay(all, &table);
        }
        self.params(World::Kernel, false).map(drop)
    }

    /// As [`Experiment::set`], for what is measured at other places than the file's: of figures
    /// that are not there then, nothing is claimed.
    ///
    /// # Errors
    /// As [`Experiment::set`].
    pub fn set_elsewhere(&mut self, path: &str, value: &str) -> anyhow::Result<()> {
        self.is_elsewhere = true;
        self.set(path, value)
    }

    /// The same parameters in the simulator as in the kernel, to be compared; and where a kind
    /// searches, longer looks, so that chance does not decide.
    pub fn same_in_both(&mut self) {
        self.sim.clear();
        self.sim_quick.clear();
        for (path, value) in [
            ("search.loads_s", "20.0"),
            ("search.search_s", "15.0"),
            ("search.precision", "0.01"),
            ("search.steps", "9"),
        ] {
            let mut longer = self.clone();
            if longer.set(path, value).is_ok() {
                *self = longer;
            }
        }
    }

    fn given(&self, world: World, quick: bool, idle: bool) -> Input<'_> {
        let mut table = self.params.clone();
        if quick {
            overlay(&mut table, &self.quick);
        }
        match (world, quick) {
            (World::Sim, true) => overlay(&mut table, &self.sim_quick),
            (World::Sim, false) => overlay(&mut table, &self.sim),
            (World::Kernel, _) => {}
        }
        if let Some(of) = self.idle.as_ref().filter(|_| idle) {
            overlay(&mut table, &of.params);
        }
        Input { params: table, sweep: self.sweep.as_ref() }
    }

    /// The parameters: of the full run in this world, or those with `[quick]` on top.
    ///
    /// # Errors
    /// A parameter that does not exist or has the wrong type or range.
    pub fn params(&self, world: World, quick: bool) -> anyhow::Result<Value> {
        (self.kind.parameters)(&self.given(world, quick, false))
    }

    /// Whether its file says what has to come out.
    pub fn claims_something(&self) -> bool {
        !self.claims.is_empty()
    }

    /// Whether it says so of its mechanism, and not only of what holds without it or of what the
    /// run itself has done.
    pub fn claims_an_effect(&self) -> bool {
        self.claims.values().any(|claim| claim.is_effect())
    }

    /// Whether its file says how its mechanism is turned off; if there is none, why.
    ///
    /// # Errors
    /// It says nothing.
    pub fn can_be_idle(&self) -> anyhow::Result<Result<(), &str>> {
        let idle = self.idle.as_ref().with_context(|| {
            format!(
                "experiment {}: its file does not say how its mechanism is turned off ([idle])",
                self.name
            )
        })?;
        Ok(idle.why_never.as_deref().map_or(Ok(()), Err))
    }

    /// Holds figures that were kept of a run against what is claimed of such a run: how many were
    /// there, and what is wrong with them, in words. Code of before may not have measured all.
    pub fn hold_kept(
        &self,
        figures: &Map<String, Value>,
        world: World,
        quick: bool,
    ) -> (usize, Vec<String>) {
        let claims = self.claims.iter().filter(|(name, claim)| {
            claim.is_about(world, quick) && figures.contains_key(name.as_str())
        });
        let complaint = |(name, claim): (&String, &Claim)| claim.complaint(name, figures, world);
        (claims.clone().count(), claims.filter_map(complaint).collect())
    }

    /// Names of its claims of which no quick run in the simulator says whether they come out: they
    /// are of the kernel's world, or of full runs. Guards are left out.
    pub fn claims_elsewhere(&self) -> Vec<&str> {
        let elsewhere = |claim: &Claim| !claim.guard && !claim.is_about(World::Sim, true);
        let all = self.claims.iter().filter(|(_, claim)| elsewhere(claim));
        all.map(|(name, _)| name.as_str()).collect()
    }

    /// What it needs and only the kernel's world has.
    ///
    /// # Errors
    /// As [`Experiment::params`].
    pub fn needs(&self, options: &Options) -> anyhow::Result<Option<&'static str>> {
        (self.kind.needs)(&self.given(options.world, options.quick, options.idle), options)
    }

    /// What no machine has, so that it runs in the simulator only.
    pub fn too_large(&self) -> Option<&'static str> {
        self.kind.too_large
    }

    /// Whether one run goes through as many seeds as the options say.
    pub fn takes_seeds(&self) -> bool {
        self.kind.takes_seeds
    }

    /// Runs it. With its mechanism off it has failed if anything comes out that is claimed of it.
    ///
    /// # Errors
    /// A rig that cannot be built, a process that dies, an interruption. Nothing is left behind.
    /// Or its mechanism was to be off, and cannot be.
    pub fn run(&self, options: &Options) -> anyhow::Result<Report> {
        ensure!(
            options.seeds == 1 || self.kind.takes_seeds,
            "experiment {} runs with one seed at a time",
            self.name
        );
        let given = self.given(options.world, options.quick, options.idle);
        let params = (self.kind.parameters)(&given)?;
        let mut report = Report::new(&self.name, options, params);
        let mut parts =
            Parts::of(&self.runs, &self.runs_in_kernel, options.world, &self.discipline);
        if options.idle {
            if let Err(why) = self.can_be_idle()? {
                bail!("experiment {} has nothing to turn off: {why}", self.name);
            }
            if let Some(by) = self.idle.as_ref().and_then(|idle| idle.discipline.as_deref()) {
                parts = parts.instead(&self.discipline, by);
            }
        }
        let run = Run {
            name: &self.name,
            discipline: &self.discipline,
            options,
            progress: &Progress::new(),
            parts,
            seen: NeverCounts::default(),
            searches: Searches::default(),
        };
        let load_average = busy::load_average();
        (self.kind.run)(&given, &run, &mut report)?;
        // A rate that passed once, or never, stands among those that are good.
        if let Some(unconfirmed) = run.searches.unconfirmed() {
            report.count("unconfirmed", unconfirmed);
            // A claim of its own says how many the file allows, and why.
            let is_claimed = self.claims.get("unconfirmed");
            let is_claimed = is_claimed.is_some_and(|c| c.is_about(options.world, options.quick));
            if unconfirmed > 0 && !is_claimed {
                report.fails(format!("{unconfirmed} saturations did not pass again"));
            }
        }
        if self.hold(options, &mut report) && options.world == World::Kernel {
            report.fails(busy::advice(load_average, busy::load_average()));
        }
        let seen = run.seen.borrow();
        if let Some(complaint) = seen.complaint() {
            let counts = serde_json::to_value(seen.counts())?;
            report.summary.insert("must_be_zero".into(), counts);
            report.fails(complaint);
        }
        Ok(report)
    }

    /// Holds a report against what is claimed. True: a claim about speed is missed.
    fn hold(&self, options: &Options, report: &mut Report) -> bool {
        let mut speed = false;
        let figures = report.exact();
        let claims = self.claims.iter();
        for (name, claim) in claims.filter(|(_, c)| c.is_about(options.world, options.quick)) {
            if self.is_elsewhere && !figures.contains_key(name) {
                continue;
            }
            let complaint = match options.idle {
                false => claim.complaint(name, &figures, options.world),
                true => claim.complaint_of_idle(name, &figures, options.world),
            };
            if let Some(complaint) = complaint {
                report.fails(complaint);
                speed |= claim.speed;
            }
        }
        speed
    }
}

/// Replaces values by those of another table, in tables within tables too.
fn overlay(table: &mut toml::Table, by: &toml::Table) {
    for (name, value) in by {
        match (table.get_mut(name), value) {
            (Some(toml::Value::Table(below)), toml::Value::Table(above)) => overlay(below, above),
            _ => {
                table.insert(name.clone(), value.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::Serialize;

    use super::*;
    use crate::Measure;

    #[derive(Serialize, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    struct Example {
        keys: usize,
        items: usize,
        little: f64,
        inner: Inner,
    }

    #[derive(Serialize, Deserialize, Default)]
    #[serde(deny_unknown_fields, default)]
    struct Inner {
        quota: u32,
        many: u32,
    }

    impl Default for Example {
        fn default() -> Example {
            Example { keys: 10, items: 0, little: 0.0, inner: Inner::default() }
        }
    }

    impl Measure for Example {
        fn check(&self) -> anyhow::Result<()> {
            ensure!(self.keys > 0, "keys = 0: at least one is needed");
            Ok(())
        }

        fn run(&self, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
            (0..self.items).for_each(|item| run.searches.found(item > 0));
            report.summarize("keys", self.keys as f64);
            report.summarize("little", self.little);
            Ok(())
        }
    }

    const KIND: Kind = Kind::of::<Example>("some");

    fn parse(params: &str) -> anyhow::Result<Experiment> {
        let text = format!("name = \"x\"\nkind = \"some\"\ntitle = \"t\"\n[params]\n{params}");
        let toml = Box::leak(text.into_boxed_str());
        Experiment::of(&Definition { toml, kind: &KIND }, "d")
    }

    #[test]
    fn quick_replaces_parameters() {
        let experiment = parse("keys = 5000\nitems = 50\n[quick]\nkeys = 500\n").unwrap();
        let params = |quick| experiment.params(World::Kernel, quick).unwrap();
        assert_eq!(params(false)["keys"], 5000);
        let quick = params(true);
        assert_eq!((&quick["keys"], &quick["items"]), (&500.into(), &50.into()));
    }

    #[test]
    fn quick_replaces_within_tables() {
        let text = "[params.inner]\nquota = 30\nmany = 8\n[quick.inner]\nmany = 4\n";
        let quick = parse(text).unwrap().params(World::Kernel, true).unwrap();
        let inner = &quick["inner"];
        assert_eq!((&inner["quota"], &inner["many"]), (&30.into(), &4.into()));
    }

    #[test]
    fn the_simulator_has_its_own_full_run_and_much_of_the_same_quick_one() {
        let text = "keys = 500\nitems = 9\n[quick]\nkeys = 50\n[sim]\nkeys = 5000\n[sim_quick]\nitems = 7\n";
        let mut experiment = parse(text).unwrap();
        let keys = |experiment: &Experiment, world, quick| {
            let params = experiment.params(world, quick).unwrap();
            params["keys"].as_u64().unwrap()
        };
        assert_eq!(keys(&experiment, World::Kernel, false), 500);
        assert_eq!(keys(&experiment, World::Sim, false), 5000);
        assert_eq!(keys(&experiment, World::Sim, true), 50);
        let items = |experiment: &Experiment, world| {
            experiment.params(world, true).unwrap()["items"].as_u64()
        };
        assert_eq!(items(&experiment, World::Kernel), Some(9));
        assert_eq!(items(&experiment, World::Sim), Some(7));
        experiment.same_in_both();
        assert_eq!(items(&experiment, World::Sim), Some(9));
        assert_eq!(keys(&experiment, World::Sim, false), 500);
    }

    #[test]
    fn a_parameter_that_is_set_is_set_in_every_kind_of_run() {
        let text =
            "[params.inner]\nquota = 1\n[quick.inner]\nquota = 2\n[sim]\ninner = { quota = 3 }\n";
        let mut experiment = parse(text).unwrap();
        experiment.set("inner.quota", "9").unwrap();
        experiment.set("keys", "7").unwrap();
        for (world, quick) in [(World::Kernel, false), (World::Kernel, true), (World::Sim, false)] {
            let params = experiment.params(world, quick).unwrap();
            assert_eq!(params["inner"]["quota"], 9);
            assert_eq!(params["keys"], 7);
        }
        let error = experiment.set("inner.qota", "1").unwrap_err();
        assert!(format!("{error:#}").contains("qota"));
    }

    #[test]
    fn errors_name_the_parameter() {
        for (line, expected) in [
            ("kees = 5", "kees"),
            ("keys = 0", "keys = 0"),
            ("keys = \"many\"", "keys"),
            ("inner = { qota = 1 }", "qota"),
            ("[quick]\nkees = 5", "kees"),
        ] {
            let error = format!("{:#}", parse(line).map(|_| ()).unwrap_err());
            assert!(error.contains(expected), "{error:?} should name {expected:?}");
        }
        let error = parse("").unwrap().set("kees", "5").map(|_| ()).unwrap_err();
        assert!(format!("{error:#}").contains("kees"));
    }

    #[test]
    fn what_is_claimed_and_does_not_come_out_fails_the_run() {
        let options = Options::simulated(7, &[]);
        let failure = |claim: &str| {
            let experiment = parse(&format!("keys = 5\n[claims]\n{claim}\n")).unwrap();
            experiment.run(&options).unwrap().failure
        };
        assert_eq!(failure("keys = { least = 5 }"), None);
        let said = failure("keys = { least = 6 }").unwrap();
        assert_eq!(said, "keys = 5: at least 6 was claimed");
    }

    #[test]
    fn what_is_claimed_is_held_against_what_was_measured_and_not_what_is_shown() {
        let options = Options::simulated(7, &[]);
        let text = "little = 0.0004\n[claims]\nlittle = { most = 0.0 }\n";
        let report = parse(text).unwrap().run(&options).unwrap();
        assert_eq!(report.summary["little"], 0.0);
        assert_eq!(report.failure.unwrap(), "little = 0.0004: at most 0 was claimed");
    }

    #[test]
    fn a_saturation_that_was_not_confirmed_is_told_of() {
        let options = Options::simulated(7, &[]);
        let run = |items: &str| parse(items).unwrap().run(&options).unwrap();
        let report = run("items = 3");
        assert_eq!(report.summary["unconfirmed"], 1);
        assert_eq!(report.failure.unwrap(), "1 saturations did not pass again");
        assert_eq!(run("items = 0").summary.get("unconfirmed"), None);
        let allowed = "[claims]\nunconfirmed = { most = 1, guard = true }";
        assert_eq!(run(&format!("items = 1\n{allowed}\n")).failure, None);
        let claim = "[claims]\nunconfirmed = { most = 0, guard = true }";
        let said = run(&format!("items = 1\n{claim}\n")).failure.unwrap();
        assert_eq!(said, "unconfirmed = 1: at most 0 was claimed");
    }

    #[test]
    fn neither_guards_nor_what_the_run_did_itself_are_effects() {
        let effect = parse("[claims]\nitems = { most = 9 }\n").unwrap();
        assert!(effect.claims_an_effect());
        for word in ["guard", "input"] {
            let text = format!("[claims]\nitems = {{ most = 9, {word} = true }}\n");
            assert!(!parse(&text).unwrap().claims_an_effect(), "{word}");
        }
    }

    #[test]
    fn what_was_kept_is_held_against_what_is_claimed_of_such_a_run() {
        let claims =
            "keys = { most = 5 }\nother = { least = 1 }\nitems = { most = 1, full = true }";
        let experiment = parse(&format!("keys = 5\n[claims]\n{claims}\n")).unwrap();
        let kept = serde_json::json!({"keys": 6, "items": 2});
        let held = |quick| experiment.hold_kept(kept.as_object().unwrap(), World::Sim, quick);
        assert_eq!(held(true), (1, vec!["keys = 6: at most 5 was claimed".into()]));
        assert_eq!(held(false).0, 2);
        assert_eq!(held(false).1.len(), 2);
    }

    #[test]
    fn elsewhere_only_what_is_measured_there_is_claimed() {
        let options = Options::simulated(7, &[]);
        let claims = "[claims]\nkeys = { most = 5 }\nother = { least = 1 }";
        let mut experiment = parse(&format!("keys = 5\n{claims}\n")).unwrap();
        let failure = |experiment: &Experiment| experiment.run(&options).unwrap().failure;
        assert_eq!(failure(&experiment).unwrap(), "other was not measured");
        experiment.set_elsewhere("keys", "4").unwrap();
        assert_eq!(failure(&experiment), None);
        experiment.set_elsewhere("keys", "6").unwrap();
        assert_eq!(failure(&experiment).unwrap(), "keys = 6: at most 5 was claimed");
    }

    #[test]
    fn with_its_mechanism_off_a_run_fails_if_what_is_claimed_comes_out() {
        let options = Options { idle: true, ..Options::simulated(7, &[]) };
        let failure = |rest: &str| {
            let experiment = parse(&format!("keys = 5\n[quick]\nkeys = 4\n{rest}\n"))?;
            Ok::<_, anyhow::Error>(experiment.run(&options)?.failure)
        };
        let claim = "[claims]\nkeys = { least = 2 }";
        let with = |idle: &str| failure(&format!("{claim}\n{idle}"));
        assert_eq!(with("[idle.params]\nkeys = 1").unwrap(), None);
        let said = with("[idle.params]\nkeys = 3").unwrap().unwrap();
        assert!(said.starts_with("keys = 3.0 with the mechanism off"), "{said}");
        for (idle, expected) in [
            ("", "does not say how its mechanism is turned off"),
            ("[idle]\nwhy_never = \"so\"", "nothing to turn off: so"),
            ("[idle]", "either"),
            ("[idle]\nwhy_never = \"so\"\n[idle.params]\nkeys = 1", "either"),
            ("[idle.params]\nkeys = 0", "keys = 0"),
        ] {
            let error = format!("{:#}", with(idle).unwrap_err());
            assert!(error.contains(expected), "{error:?} should say {expected:?}");
        }
    }

    #[test]
    fn a_missed_speed_in_the_kernel_says_how_busy_the_machine_was() {
        let simulated = Options::simulated(7, &[]);
        let kernel = Options { world: World::Kernel, ..simulated.clone() };
        for (claim, options, expected) in [
            ("keys = { least = 6, speed = true }", &kernel, true),
            ("keys = { least = 6 }", &kernel, false),
            ("keys = { least = 6, speed = true }", &simulated, false),
        ] {
            let experiment = parse(&format!("keys = 5\n[claims]\n{claim}\n")).unwrap();
            let said = experiment.run(options).unwrap().failure.unwrap();
            assert!(said.starts_with("keys = 5: at least 6 was claimed"), "{said}");
            assert_eq!(said.contains("load average"), expected, "{said}");
        }
    }

    #[test]
    fn a_file_of_another_kind_is_refused() {
        let toml = "name = \"x\"\nkind = \"other\"\ntitle = \"t\"\n";
        let definition = Definition { toml, kind: &KIND };
        let error = Experiment::of(&definition, "d").map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("other"), "{error}");
    }

    #[test]
    fn a_run_has_its_parameters_in_the_report() {
        let options = Options::simulated(7, &[]);
        let experiment = parse("keys = 5\n[quick]\nkeys = 4\n").unwrap();
        let report = experiment.run(&options).unwrap();
        assert_eq!((report.seed, &report.params["keys"]), (7, &4.into()));
        assert_eq!(report.world, World::Sim);
        assert_eq!(report.summary["keys"], 4.0);
    }
}
