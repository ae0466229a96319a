//! What programs print for people, without knowing what it is about: [`table`].

pub mod table;
