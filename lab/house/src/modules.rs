//! The modules of a crate, from the file that it begins with, and what a path in one of them names.

use std::collections::{BTreeMap, BTreeSet};

use crate::{facts::Scope, tree::Tree};

/// The modules of one library or program; its root is the first.
pub struct Modules<'a> {
    modules: Vec<Module<'a>>,
}

struct Module<'a> {
    /// The file that it is in, as an index into the tree's sources.
    file: usize,
    scope: &'a Scope,
    parent: usize,
    children: BTreeMap<&'a str, usize>,
}

/// What a path names.
#[derive(Clone, Copy)]
enum Target {
    /// A module.
    Module(usize),
    /// Something that this module defines, or hands on from another crate.
    Item(usize),
}

/// A module, and a name that is looked up in it: what is under way already is not begun again.
type UnderWay<'a> = BTreeSet<(usize, &'a str)>;

impl<'a> Modules<'a> {
    /// Follows the `mod` of this file and of all that are reached from it. Those whose files are
    /// not there, because a build script writes them, are left out.
    pub fn read(tree: &'a Tree, root: usize) -> Self {
        let mut modules = Self { modules: Vec::new() };
        let path = &tree.sources[root].path;
        modules.add(tree, (root, 0), 0, &folder_of_root(path));
        modules
    }

    /// Adds the module in this scope of this file, and those inside it, whose files are in
    /// `folder`.
    fn add(&mut self, tree: &'a Tree, at: (usize, usize), parent: usize, folder: &str) {
        let (file, scope) = at;
        let Some(facts) = &tree.sources[file].rust else { return };
        let index = self.modules.len();
        let scope = &facts.scopes[scope];
        self.modules.push(Module { file, scope, parent, children: BTreeMap::new() });
        for module in &scope.modules {
            let inner = format!("{folder}/{}", module.name);
            let found = match (module.scope, &module.path) {
                (Some(scope), _) => Some((file, scope)),
                (None, Some(path)) => {
                    tree.find(&beside(&tree.sources[file].path, path)).map(|f| (f, 0))
                }
                (None, None) => [format!("{inner}.rs"), format!("{inner}/mod.rs")]
                    .iter()
                    .find_map(|path| tree.find(path).map(|file| (file, 0))),
            };
            if let Some(at) = found {
                let child = self.modules.len();
                self.modules[index].children.insert(&module.name, child);
                self.add(tree, at, index, &inner);
            }
        }
    }

    /// The files of the crate.
    pub fn files(&self) -> BTreeSet<usize> {
        self.modules.iter().map(|module| module.file).collect()
    }

    /// Each file with the one of the module around it.
    pub fn parents(&self) -> BTreeSet<(usize, usize)> {
        let pair = |module: &Module| (module.file, self.modules[module.parent].file);
        self.modules.iter().map(pair).collect()
    }

    /// Each path in a file that names what another file of this crate defines: both files, the path
    /// and its line.
    pub fn uses(&self) -> Vec<(usize, usize, &'a [String], usize)> {
        let mut uses = Vec::new();
        for (index, module) in self.modules.iter().enumerate() {
            for (path, line) in &module.scope.paths {
                // Who only says the name of a module uses nothing of it.
                if let Some(Target::Item(defines)) = self.resolve(index, path, &mut BTreeSet::new())
                {
                    let to = self.modules[defines].file;
                    if to != module.file {
                        uses.push((module.file, to, path.as_slice(), *line));
                    }
                }
            }
        }
        uses
    }

    /// What a path in this module names, if it is of this crate.
    fn resolve(
        &self,
        from: usize,
        path: &'a [String],
        under_way: &mut UnderWay<'a>,
    ) -> Option<Target> {
        let (first, mut rest) = path.split_first()?;
        let mut target = match first.as_str() {
            "crate" => Target::Module(0),
            "self" => Target::Module(from),
            "super" => Target::Module(self.modules[from].parent),
            name => self.look_up(from, name, under_way)?,
        };
        while let (Target::Module(module), Some((name, more))) = (target, rest.split_first()) {
            target = match name.as_str() {
                "super" => Target::Module(self.modules[module].parent),
                // What cannot be found here was written by a macro, or comes from another crate.
                name => self.look_up(module, name, under_way).unwrap_or(Target::Item(module)),
            };
            rest = more;
        }
        Some(target)
    }

    /// What this name stands for in this module.
    fn look_up(
        &self,
        module: usize,
        name: &'a str,
        under_way: &mut UnderWay<'a>,
    ) -> Option<Target> {
        let Module { scope, children, .. } = &self.modules[module];
        if let Some(child) = children.get(name) {
            return Some(Target::Module(*child));
        }
        if scope.items.contains(name) {
            return Some(Target::Item(module));
        }
        if !under_way.insert((module, name)) {
            return None;
        }
        let found = match scope.imports.get(name) {
            Some(path) => self.resolve(module, path, under_way),
            None => {
                scope.globs.iter().find_map(|glob| match self.resolve(module, glob, under_way)? {
                    Target::Module(inside) => self.look_up(inside, name, under_way),
                    Target::Item(_) => None,
                })
            }
        };
        under_way.remove(&(module, name));
        found
    }
}

/// Where the modules of a crate that begins with this file are.
fn folder_of_root(path: &str) -> String {
    path.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned()
}

/// A path that is said in a file, from its folder on.
fn beside(file: &str, path: &str) -> String {
    let mut folders: Vec<&str> = file.split('/').collect();
    folders.pop();
    for part in path.split('/') {
        match part {
            ".." => drop(folders.pop()),
            part => folders.push(part),
        }
    }
    folders.join("/")
}
