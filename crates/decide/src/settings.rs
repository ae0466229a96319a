//! Numbers that operators set, of a discipline or of one of its tenants.

use std::ops::Index;

/// Settings that a discipline may have.
pub const SETTINGS_MAX: usize = 12;

/// A number of a discipline that operators may set: `shortstop control --set DISCIPLINE.NAME=N`.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its name; with its unit, where it has one.
    pub name: &'static str,
    /// One line on what it does.
    pub about: &'static str,
    /// What it is if nobody sets it.
    pub usual: u32,
    /// The least that it can be.
    pub least: u32,
    /// The most.
    pub most: u32,
    /// An option that stays as it is while its tenant has items, for they were made by it.
    pub fixed: bool,
}

impl Setting {
    /// A setting of this name.
    pub const fn new(
        name: &'static str,
        about: &'static str,
        usual: u32,
        least: u32,
        most: u32,
    ) -> Setting {
        Setting { name, about, usual, least, most, fixed: false }
    }

    /// Likewise, of a tenant that has no items.
    #[must_use]
    pub const fn fixed(mut self) -> Setting {
        self.fixed = true;
        self
    }

    /// Checks that the setting, which is called `name`, can be this number.
    ///
    /// # Errors
    /// One line that says what it can be.
    pub(crate) fn check(&self, name: &str, number: u32) -> Result<(), String> {
        let Setting { least, most, .. } = self;
        match (*least..=*most).contains(&number) {
            true => Ok(()),
            false => Err(format!("{name}: {number}, expected {least} to {most}")),
        }
    }
}

/// The numbers of one discipline's settings, in the order in which it registers them; 0 where it
/// has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings([u32; SETTINGS_MAX]);

impl Index<usize> for Settings {
    type Output = u32;

    fn index(&self, at: usize) -> &u32 {
        &self.0[at]
    }
}

impl Settings {
    /// Another number in one place.
    #[must_use]
    pub fn with(mut self, at: usize, number: u32) -> Settings {
        self.0[at] = number;
        self
    }
}
