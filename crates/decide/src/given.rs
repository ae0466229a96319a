//! What operators set of disciplines and of their tenants: checked, and taken as the numbers of
//! settings.

use std::collections::BTreeMap;

use crate::{Registration, SETTINGS_MAX, Setting, Settings};

impl Registration {
    /// Its settings where `given` says `DISCIPLINE.NAME`; the usual ones elsewhere. Those of other
    /// disciplines are passed over.
    pub fn settings(&self, given: &BTreeMap<String, u32>) -> Settings {
        let name = |setting: &Setting| format!("{}.{}", self.name, setting.name);
        taken(self.settings, |setting| given.get(&name(setting)))
    }

    /// A tenant's options where `given` names them; the usual ones elsewhere. Others are passed
    /// over.
    pub fn tenant_options(&self, given: &BTreeMap<String, u32>) -> Settings {
        taken(self.options, |option| given.get(option.name))
    }

    /// The first option that is to stay while a tenant has items, and has another number after a
    /// change of what is given.
    pub fn changes_fixed(
        &self,
        before: &BTreeMap<String, u32>,
        after: &BTreeMap<String, u32>,
    ) -> Option<&'static str> {
        let (before, after) = (self.tenant_options(before), self.tenant_options(after));
        let mut all = self.options.iter().enumerate();
        let changed = all.find(|(at, option)| option.fixed && before[*at] != after[*at]);
        changed.map(|(_, option)| option.name)
    }

    /// Checks that each of these is an option of its tenants, and its number one that it can be.
    ///
    /// # Errors
    /// One line on the first that is not.
    pub fn check_options(&self, given: &BTreeMap<String, u32>) -> Result<(), String> {
        for (name, number) in given {
            let Some(option) = self.options.iter().find(|option| option.name == name) else {
                let names: Vec<&str> = self.options.iter().map(|option| option.name).collect();
                return Err(match names.is_empty() {
                    true => format!("option {name}: tenants of {} have none", self.name),
                    false => format!("option {name}: expected one of {}", names.join(", ")),
                });
            };
            option.check(&format!("option {name}"), *number)?;
        }
        Ok(())
    }
}

/// The number of each of `all`: the one that is given, within its bounds, or the usual one.
fn taken<'a>(all: &[Setting], given: impl Fn(&Setting) -> Option<&'a u32>) -> Settings {
    let mut settings = Settings::default();
    for (at, setting) in all.iter().enumerate().take(SETTINGS_MAX) {
        let number =
            given(setting).map_or(setting.usual, |n| *n.clamp(&setting.least, &setting.most));
        settings = settings.with(at, number);
    }
    settings
}

/// Checks that each of these settings is one that some discipline has, and its number one that it
/// can be.
///
/// # Errors
/// One line on the first that is not.
pub fn check_settings(
    registered: &[Registration],
    given: &BTreeMap<String, u32>,
) -> Result<(), String> {
    for (name, number) in given {
        let parts = name.split_once('.');
        let discipline = parts.and_then(|(of, _)| registered.iter().find(|r| r.name == of));
        let known = || {
            let names = registered
                .iter()
                .flat_map(|r| r.settings.iter().map(|s| format!("{}.{}", r.name, s.name)));
            names.collect::<Vec<_>>().join(", ")
        };
        let mut all = discipline.into_iter().flat_map(|r| r.settings);
        let Some(setting) = all.find(|s| parts.is_some_and(|(_, wanted)| s.name == wanted)) else {
            return Err(format!("{name}: expected one of {}", known()));
        };
        setting.check(name, *number)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NONE;

    const SPEED: Setting = Setting::new("speed", "how fast", 5, 1, 9);
    const FAST: Registration = Registration {
        name: "fast",
        settings: &[SPEED, Setting { name: "depth", ..SPEED }],
        ..NONE
    };

    fn given(all: &[(&str, u32)]) -> BTreeMap<String, u32> {
        all.iter().map(|(name, n)| ((*name).into(), *n)).collect()
    }

    #[test]
    fn what_is_not_given_is_as_usual() {
        let settings = FAST.settings(&given(&[("fast.depth", 7), ("none.speed", 2)]));
        assert_eq!((settings[0], settings[1], settings[2]), (5, 7, 0));
    }

    #[test]
    fn options_are_a_tenants_and_have_the_same_bounds() {
        const OF_TENANTS: Registration = Registration { options: &[SPEED], ..NONE };
        assert_eq!(OF_TENANTS.tenant_options(&given(&[("speed", 7)]))[0], 7);
        assert_eq!(OF_TENANTS.tenant_options(&given(&[]))[0], 5);
        let check = |of: &Registration, all: &[_]| of.check_options(&given(all));
        assert_eq!(check(&OF_TENANTS, &[("speed", 9)]), Ok(()));
        let error = check(&OF_TENANTS, &[("speed", 10)]).unwrap_err();
        assert_eq!(error, "option speed: 10, expected 1 to 9");
        let error = check(&OF_TENANTS, &[("depth", 1)]).unwrap_err();
        assert_eq!(error, "option depth: expected one of speed");
        let error = check(&FAST, &[("speed", 5)]).unwrap_err();
        assert_eq!(error, "option speed: tenants of fast have none");
    }

    #[test]
    fn a_fixed_option_changes_with_its_number_not_with_who_names_it() {
        const DEEP: Registration =
            Registration { options: &[SPEED, Setting { name: "depth", ..SPEED.fixed() }], ..NONE };
        let changes = |before: &[_], after: &[_]| DEEP.changes_fixed(&given(before), &given(after));
        assert_eq!(changes(&[("speed", 2)], &[("speed", 3)]), None);
        assert_eq!(changes(&[], &[("depth", 5)]), None, "it is the usual number");
        assert_eq!(changes(&[("depth", 4)], &[]), Some("depth"));
        assert_eq!(changes(&[], &[("depth", 4)]), Some("depth"));
    }

    #[test]
    fn a_setting_that_nobody_has_or_that_cannot_be_is_an_error_that_says_so() {
        let check = |all: &[_]| check_settings(&[NONE, FAST], &given(all));
        assert_eq!(check(&[("fast.speed", 9)]), Ok(()));
        let error = check(&[("fast.speed", 10)]).unwrap_err();
        assert_eq!(error, "fast.speed: 10, expected 1 to 9");
        for name in ["fast.sped", "slow.speed", "speed"] {
            let error = check(&[(name, 5)]).unwrap_err();
            let expected = format!("{name}: expected one of fast.speed, fast.depth");
            assert_eq!(error, expected);
        }
    }
}
