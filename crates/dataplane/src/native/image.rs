//! What a switch in this process remembers, saved and put back. For tests of a machine that is
//! restored from a snapshot.

use super::Switch;
use crate::maps::local::LocalMap;

/// What a switch remembers, for tests that put it back to a moment of before, as a virtual machine
/// that is restored from a snapshot.
pub struct Image(Vec<(String, Vec<u8>)>);

/// Tables that the programs only read, or that tell the agent of what was.
const NOT_ITS_MEMORY: [u32; 3] = [
    libbpf_rs::MapType::RingBuf as u32,
    libbpf_rs::MapType::ProgArray as u32,
    libbpf_rs::MapType::ArrayOfMaps as u32,
];

/// Tables that are the same in every switch of the same programs, or that lose what was not taken.
const LEFT_OUT: [u32; 2] =
    [libbpf_rs::MapType::RingBuf as u32, libbpf_rs::MapType::ProgArray as u32];

/// Bytes that are copied at a time.
const CHUNK: usize = 4096;

impl Switch {
    /// All arrays as they are now. Nobody may run programs of the switch meanwhile. Tables with
    /// keys are left out: programs go by none that they write.
    pub fn image(&self) -> Image {
        let names = self.table_names().iter();
        Image(names.filter_map(|name| self.bytes_of(name)).collect())
    }

    /// Makes all arrays what they were, under the same condition.
    ///
    /// # Panics
    /// If the image is of a switch with other tables.
    pub fn put_back(&self, image: &Image) {
        for (name, bytes) in &image.0 {
            let (table, len) = self.array(name).expect("a table of this switch");
            assert_eq!(len, bytes.len(), "{name}: another size");
            // SAFETY: as many bytes of the array, from its first one on; nobody else uses them now.
            unsafe { table.at(0).copy_from_nonoverlapping(bytes.as_ptr(), len) };
        }
    }

    /// Makes all tables of another switch, which has the same objects and nothing in its tables
    /// yet, what they are here now, those with keys among them: what a process leaves that is
    /// killed now. Events that were not taken yet are left out. Nobody may run programs of either
    /// meanwhile.
    ///
    /// # Panics
    /// If the other one has other tables.
    pub fn copy_to(&self, other: &Switch) {
        for name in self.table_names() {
            let [from, to] = [self, other].map(|of| of.table(name).expect("the same tables"));
            if LEFT_OUT.contains(&from.kind()) {
                continue;
            }
            let Some(len) = from.bytes_of_array() else {
                for key in from.keys() {
                    let value = from.lookup(&key).expect("nobody removes it");
                    to.update(&key, &value).expect("as much room");
                }
                continue;
            };
            assert_eq!(to.bytes_of_array(), Some(len), "{name}: another size");
            // SAFETY: as many bytes of the arrays, from the first ones on; nobody writes them now.
            let (from, to) = unsafe {
                let from: &[u8] = std::slice::from_raw_parts(from.at(0), len);
                (from, std::slice::from_raw_parts_mut(to.at(0), len))
            };
            // What is zero there takes no memory here either.
            for (from, to) in from.chunks(CHUNK).zip(to.chunks_mut(CHUNK)) {
                if *from != [0; CHUNK][..from.len()] {
                    to.copy_from_slice(from);
                }
            }
        }
    }

    fn bytes_of(&self, name: &str) -> Option<(String, Vec<u8>)> {
        let (table, len) = self.array(name)?;
        let mut bytes = vec![0; len];
        // SAFETY: as above.
        unsafe { table.at(0).copy_to_nonoverlapping(bytes.as_mut_ptr(), len) };
        Some((name.into(), bytes))
    }

    /// An array with the length of it, all CPUs' elements.
    fn array(&self, name: &str) -> Option<(LocalMap, usize)> {
        let table = self.table(name)?;
        if NOT_ITS_MEMORY.contains(&table.kind()) {
            return None;
        }
        let len = table.bytes_of_array()?;
        Some((table, len))
    }
}
