//! What a rack is to be, as data: what people write in a file, and the roles that run there.

pub mod roles;
pub mod topology;
