//! What the checks ask of one Rust file, read from its syntax: which modules, names and imports it
//! has, and which paths it names.
//!
//! Plain data, which unlike syntax may go from one thread to another. Code for tests only is left
//! out but for the names of its types.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};
use syn::{
    Attribute, Ident, Item, ItemImpl, ItemMod, Macro, Meta, UseTree, Visibility,
    visit::{self, Visit},
};

/// One file.
#[derive(Default)]
pub struct Facts {
    /// Whether it begins with a doc comment about itself.
    pub documented: bool,
    /// The types that it defines, those of its tests too.
    pub types: Vec<Name>,
    /// The types that it has `impl` blocks of their own methods for.
    pub impls: Vec<Name>,
    /// The module that the file is, then those that are written out in it.
    pub scopes: Vec<Scope>,
}

/// A name, and the line where it stands.
pub struct Name {
    /// The name.
    pub name: String,
    /// The line, from 1.
    pub line: usize,
}

/// What stands in one module of a file.
#[derive(Default)]
pub struct Scope {
    /// Its modules.
    pub modules: Vec<Module>,
    /// The names of its items, in all namespaces.
    pub items: BTreeSet<String>,
    /// What names stand for, by `use`.
    pub imports: BTreeMap<String, Vec<String>>,
    /// The modules that all names are taken from, by `use path::*`.
    pub globs: Vec<Vec<String>>,
    /// The paths that its code names, those of `use` among them, and where.
    pub paths: Vec<(Vec<String>, usize)>,
}

/// A `mod` in a module.
pub struct Module {
    /// Its name.
    pub name: String,
    /// The file that an attribute says it is in.
    pub path: Option<String>,
    /// The scope of the same file that it is, if it is written out there.
    pub scope: Option<usize>,
}

impl Facts {
    /// Reads the text of a file; fails where it is no Rust.
    pub fn read(text: &str) -> syn::Result<Self> {
        let file = syn::parse_file(text)?;
        let mut reader = Reader {
            facts: Facts {
                documented: file.attrs.iter().any(|attr| attr.path().is_ident("doc")),
                scopes: vec![Scope::default()],
                ..Facts::default()
            },
            scope: 0,
            tests: 0,
        };
        reader.visit_file(&file);
        Ok(reader.facts)
    }
}

/// Walks through a file.
struct Reader {
    facts: Facts,
    /// The scope that the code at hand belongs to.
    scope: usize,
    /// How many items around the code at hand are for tests only.
    tests: usize,
}

impl Reader {
    fn scope(&mut self) -> &mut Scope {
        &mut self.facts.scopes[self.scope]
    }

    fn path(&mut self, path: Vec<String>, line: usize) {
        if self.tests == 0 {
            self.scope().paths.push((path, line));
        }
    }

    fn imports(&mut self, tree: &UseTree, mut prefix: Vec<String>) {
        match tree {
            UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                self.imports(&path.tree, prefix);
            }
            UseTree::Name(name) => self.import(prefix, None, &name.ident),
            UseTree::Rename(rename) => {
                let to = rename.rename.to_string();
                self.import(prefix, Some(to), &rename.ident);
            }
            UseTree::Glob(_) => self.scope().globs.push(prefix),
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.imports(tree, prefix.clone());
                }
            }
        }
    }

    /// `use prefix::name as to`.
    fn import(&mut self, mut path: Vec<String>, to: Option<String>, name: &Ident) {
        if name != "self" {
            path.push(name.to_string());
        }
        self.path(path.clone(), name.span().start().line);
        if let Some(to) = to.or_else(|| path.last().cloned()) {
            self.scope().imports.entry(to).or_insert(path);
        }
    }

    /// The paths in what a macro is called with, which no parser but the macro's own understands.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut line = 0;
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.path_of_tokens(std::mem::take(&mut path), line);
                    }
                    line = ident.span().start().line;
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' && colons < 2 => colons += 1,
                other => {
                    self.path_of_tokens(std::mem::take(&mut path), line);
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.tokens(group.stream());
                    }
                }
            }
        }
        self.path_of_tokens(path, line);
    }

    /// A lone name in a macro may be a variable's, unless it is written like a type's.
    fn path_of_tokens(&mut self, path: Vec<String>, line: usize) {
        let typed = |name: &String| name.starts_with(|first: char| first.is_ascii_uppercase());
        if path.len() > 1 || path.first().is_some_and(typed) {
            self.path(path, line);
        }
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item(&mut self, item: &'ast Item) {
        let tests = usize::from(attributes(item).iter().any(is_for_tests));
        self.tests += tests;
        self.name(item);
        visit::visit_item(self, item);
        self.tests -= tests;
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if self.tests > 0 {
            return visit::visit_item_mod(self, item);
        }
        let scope = item.content.as_ref().map(|_| {
            self.facts.scopes.push(Scope::default());
            self.facts.scopes.len() - 1
        });
        self.scope().modules.push(Module {
            name: item.ident.to_string(),
            path: item.attrs.iter().find_map(path_attribute),
            scope,
        });
        let around = self.scope;
        self.scope = scope.unwrap_or(around);
        visit::visit_item_mod(self, item);
        self.scope = around;
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if self.tests == 0 && item.leading_colon.is_none() {
            self.imports(&item.tree, Vec::new());
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if let (None, Some(first)) = (&path.leading_colon, path.segments.first()) {
            let names = path.segments.iter().map(|part| part.ident.to_string());
            self.path(names.collect(), first.ident.span().start().line);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        self.visit_path(&call.path);
        self.tokens(call.tokens.clone());
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        let tests = usize::from(item.attrs.iter().any(is_for_tests));
        self.tests += tests;
        visit::visit_impl_item_fn(self, item);
        self.tests -= tests;
    }

    // What an attribute or a visibility names is no use of it.
    fn visit_attribute(&mut self, _: &'ast Attribute) {}
    fn visit_visibility(&mut self, _: &'ast Visibility) {}
}

impl Reader {
    /// Notes what this item defines.
    fn name(&mut self, item: &Item) {
        let (ident, is_type) = match item {
            Item::Struct(item) => (&item.ident, true),
            Item::Enum(item) => (&item.ident, true),
            Item::Union(item) => (&item.ident, true),
            Item::Trait(item) => (&item.ident, true),
            Item::Type(item) => (&item.ident, true),
            Item::Const(item) => (&item.ident, false),
            Item::Static(item) => (&item.ident, false),
            Item::Fn(item) => (&item.sig.ident, false),
            Item::Macro(item) => match &item.ident {
                Some(ident) => (ident, false),
                None => return,
            },
            Item::Impl(item) => return self.own_methods(item),
            _ => return,
        };
        let (name, line) = (ident.to_string(), ident.span().start().line);
        if self.tests == 0 {
            self.scope().items.insert(name.clone());
        }
        if is_type {
            self.facts.types.push(Name { name, line });
        }
    }

    fn own_methods(&mut self, item: &ItemImpl) {
        let syn::Type::Path(of) = &*item.self_ty else { return };
        if let (0, None, Some(last)) = (self.tests, &item.trait_, of.path.segments.last()) {
            self.facts.impls.push(Name {
                name: last.ident.to_string(),
                line: item.impl_token.span.start().line,
            });
        }
    }
}

/// The attributes of an item.
fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Whether this is `#[test]`, or a `#[cfg(...)]` that asks for tests.
fn is_for_tests(attribute: &Attribute) -> bool {
    match &attribute.meta {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) if list.path.is_ident("cfg") => asks_for_tests(list.tokens.clone()),
        _ => false,
    }
}

/// Whether `test` stands in a condition, but not under a `not`.
fn asks_for_tests(condition: TokenStream) -> bool {
    let mut negated = false;
    condition.into_iter().any(|token| match token {
        TokenTree::Ident(ident) => {
            negated = ident == "not";
            ident == "test"
        }
        TokenTree::Group(group) => !negated && asks_for_tests(group.stream()),
        _ => false,
    })
}

/// What `#[path = "..."]` says.
fn path_attribute(attribute: &Attribute) -> Option<String> {
    let Meta::NameValue(pair) = &attribute.meta else { return None };
    match (&pair.value, pair.path.is_ident("path")) {
        (syn::Expr::Lit(value), true) => match &value.lit {
            syn::Lit::Str(path) => Some(path.value()),
            _ => None,
        },
        _ => None,
    }
}
