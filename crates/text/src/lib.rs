//! What programs print for people, without knowing what it is about: [`table`].

#![deny(unsafe_code)]

pub mod table;
