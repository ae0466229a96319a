//! Who asks, and what they may: tokens, and the callers that they stand for. [`crate::http`] turns
//! away who has no business there, and its handlers check the finer points with the
//! caller's methods.

mod access;
mod caller;
mod grpc;
mod role;
mod tokens;

pub use access::Access;
pub use caller::{Caller, Pass};
pub use grpc::Call;
pub use role::Role;
pub use tokens::{NewToken, TokenError, Tokens, add, make};
