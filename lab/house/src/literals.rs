//! Values and patterns of structs that name their fields, `Name { field: value, other }`, as the
//! compiler meets them: also in what macros are called with, also in tests.

use std::collections::BTreeSet;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// One that leaves no field to `..`.
pub struct Literal {
    /// The type's name, without its path.
    pub name: String,
    /// The line of the name, from 1.
    pub line: usize,
    /// The fields that it names.
    pub fields: BTreeSet<String>,
}

/// All of a Rust file.
///
/// # Errors
/// It is no Rust.
pub fn literals(text: &str) -> anyhow::Result<Vec<Literal>> {
    let tokens: TokenStream = text.parse().map_err(|e| anyhow::anyhow!("no Rust: {e}"))?;
    let mut found = Vec::new();
    search(tokens, &mut found);
    Ok(found)
}

fn search(tokens: TokenStream, found: &mut Vec<Literal>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (place, token) in tokens.iter().enumerate() {
        let TokenTree::Group(group) = token else { continue };
        search(group.stream(), found);
        let before = |by: usize| place.checked_sub(by).map(|place| &tokens[place]);
        let is_definition = before(2).is_some_and(|token| token.to_string() == "struct");
        match (before(1), group.delimiter()) {
            (Some(TokenTree::Ident(name)), Delimiter::Brace) if !is_definition => {
                found.extend(fields(group.stream()).map(|fields| Literal {
                    name: name.to_string(),
                    line: name.span().start().line,
                    fields,
                }));
            }
            _ => {}
        }
    }
}

/// What stands first in each part between commas; none: one of them begins with `..`.
fn fields(tokens: TokenStream) -> Option<BTreeSet<String>> {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let is =
        |token: &TokenTree, wanted| matches!(token, TokenTree::Punct(p) if p.as_char() == wanted);
    let parts = tokens.split(|token| is(token, ',')).filter_map(|part| {
        // Behind attributes, and words of patterns.
        part.iter().find(|token| {
            let is_word = matches!(token.to_string().as_str(), "ref" | "mut");
            !is(token, '#') && !matches!(token, TokenTree::Group(_)) && !is_word
        })
    });
    let parts: Vec<&TokenTree> = parts.collect();
    let has_rest = parts.iter().any(|first| is(first, '.'));
    (!has_rest).then(|| parts.into_iter().map(ToString::to_string).collect())
}
