//! What a rack is to be, as data: what people write in a file, the roles that run there, and the
//! plan that layouts of experiments write.

mod line;
mod plan;
pub mod roles;
pub mod topology;

pub use line::{Line, client, control, switch};
pub use plan::{CLIENT_CPU, Hardware, LEASE_MS, OTHER_CPU, Plan, SeatedRole, Site};
