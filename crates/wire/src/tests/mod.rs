//! Packets and cluster files, encoded and decoded: by the vectors, by properties, and by the inputs
//! that fuzzing has kept.

mod corpus;
mod properties;
mod vectors;
