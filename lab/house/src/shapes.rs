//! The structs that a file defines, with the names of their fields: those of Rust, messages of a
//! `.proto` file, and the documents that the macro `terms!` makes of the terms of a tenant.

use std::collections::{BTreeMap, BTreeSet};

use syn::{
    ItemMacro, ItemStruct,
    parse::{Parse, ParseStream},
    visit::{self, Visit},
};

/// Fields by the names of types.
pub type Shapes = BTreeMap<String, BTreeSet<String>>;

/// The documents that have all terms; whatever else is in one comes on top.
const DOCUMENTS: [&str; 3] = ["Terms", "TenantSpec", "TenantChange"];

/// The structs of a file; none, if it is neither Rust nor a `.proto`.
///
/// # Errors
/// It is no Rust.
pub fn shapes(path: &str, text: &str) -> anyhow::Result<Shapes> {
    if path.ends_with(".proto") {
        return Ok(messages(text));
    }
    let mut reader = Reader(Shapes::new());
    if path.ends_with(".rs") {
        reader.visit_file(&syn::parse_file(text)?);
    }
    Ok(reader.0)
}

/// Each field of a message stands on a line of its own: `TYPE NAME = NUMBER;`.
fn messages(text: &str) -> Shapes {
    let field = |line: &str| Some(line.split_once(" = ")?.0.rsplit(' ').next()?.to_owned());
    let messages = text.split("\nmessage ").skip(1).filter_map(|message| {
        let (name, rest) = message.split_once(" {\n")?;
        Some((name.to_owned(), rest.split_once("\n}")?.0.lines().filter_map(field).collect()))
    });
    messages.collect()
}

struct Reader(Shapes);

impl<'ast> Visit<'ast> for Reader {
    fn visit_item_struct(&mut self, item: &'ast ItemStruct) {
        let names = item.fields.iter().filter_map(|field| field.ident.as_ref());
        self.0.insert(item.ident.to_string(), names.map(ToString::to_string).collect());
        visit::visit_item_struct(self, item);
    }

    fn visit_item_macro(&mut self, item: &'ast ItemMacro) {
        if let (true, Ok(List(terms))) = (item.mac.path.is_ident("terms"), item.mac.parse_body()) {
            self.0.extend(DOCUMENTS.map(|name| (name.to_owned(), terms.clone())));
        }
    }
}

/// The names in `NAME: TYPE = VALUE;`, as often as that comes, with attributes or without.
struct List(BTreeSet<String>);

impl Parse for List {
    fn parse(input: ParseStream<'_>) -> syn::Result<List> {
        let mut names = BTreeSet::new();
        while !input.is_empty() {
            input.call(syn::Attribute::parse_outer)?;
            names.insert(input.parse::<syn::Ident>()?.to_string());
            input.parse::<syn::Token![:]>()?;
            input.parse::<syn::Type>()?;
            input.parse::<syn::Token![=]>()?;
            input.parse::<syn::Expr>()?;
            input.parse::<syn::Token![;]>()?;
        }
        Ok(List(names))
    }
}
