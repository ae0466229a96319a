//! What programs print for people, without knowing what it is about: a [`table`], and what of a
//! [`url`] may be shown.

#![deny(unsafe_code)]

pub mod table;
pub mod url;
