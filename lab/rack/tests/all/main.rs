//! Labs of real namespaces, and the processes in them.

mod namespaces;
mod support;
