//! The rows of maps that disciplines define for themselves. The agent writes what a discipline's
//! control half says, byte for byte.

use libbpf_rs::MapType;

use super::{backing::Backing, map::Map};
use crate::Error;

/// A row: the key's bytes and the value's.
pub type KeyValue = (Vec<u8>, Vec<u8>);

/// The rows of a map that a discipline's C defines. What they mean is the discipline's affair; the
/// kernel is asked for the lengths of keys and values.
pub struct Rows {
    name: String,
    map: Map,
}

impl Rows {
    /// The map `map` of `discipline` (of the first, if disciplines share an object) of a switch.
    ///
    /// # Errors
    /// No such switch or map, a name that is not the discipline's, or a kind of map that has
    /// no rows.
    pub fn open(at: impl Into<Backing>, discipline: &str, map: &str) -> Result<Rows, Error> {
        let at = at.into();
        at.must_exist()?;
        let own = map.strip_prefix(discipline).is_some_and(|rest| rest.starts_with('_'));
        if !own || map.contains(['/', '.']) {
            return Err(Error::row(map, format!("it is not a map of {discipline}")));
        }
        if !at.has_map(map) {
            return Err(Error::row(map, format!("{discipline} has no such map here")));
        }
        let handle = at.map(map)?;
        let has_rows = [MapType::Hash, MapType::LruHash, MapType::Array, MapType::LpmTrie];
        if !has_rows.contains(&handle.map_type()) {
            return Err(Error::row(
                map,
                format!("it is a {:?}, which has no rows", handle.map_type()),
            ));
        }
        Ok(Rows { name: map.into(), map: handle })
    }

    /// The hash maps of `discipline` there.
    ///
    /// # Errors
    /// If they cannot be listed or opened.
    pub fn hash_maps(at: impl Into<Backing>, discipline: &str) -> Result<Vec<Rows>, Error> {
        let at = at.into();
        let mut maps = vec![];
        for name in at.maps_of(discipline)? {
            let map = at.map(&name)?;
            if map.map_type() == MapType::Hash {
                maps.push(Rows { name, map });
            }
        }
        Ok(maps)
    }

    /// The map's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Writes a row, in the place of the one with this key.
    ///
    /// # Errors
    /// Lengths that are not the map's, or a map that is full.
    pub fn write(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.check("a key", key, self.map.key_size())?;
        self.check("a value", value, self.map.value_size())?;
        let written = self.map.update(key, value);
        written.map_err(Error::bpf(format!("writing a row of {}", self.name)))
    }

    /// Removes a row; an array's becomes zeros. One that is not there is fine.
    ///
    /// # Errors
    /// A key of another length than the map's.
    pub fn delete(&self, key: &[u8]) -> Result<(), Error> {
        self.check("a key", key, self.map.key_size())?;
        if self.map.map_type() == MapType::Array {
            return self.write(key, &vec![0; self.map.value_size() as usize]);
        }
        match self.map.delete(key) {
            Err(error) if error.kind() != libbpf_rs::ErrorKind::NotFound => {
                Err(Error::bpf(format!("removing a row of {}", self.name))(error))
            }
            _ => Ok(()),
        }
    }

    /// The value of a key.
    ///
    /// # Errors
    /// A key of another length than the map's.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.check("a key", key, self.map.key_size())?;
        let found = self.map.lookup(key);
        found.map_err(Error::bpf(format!("reading {}", self.name)))
    }

    /// Every row, as key and value, in no order. Of rows that come and go meanwhile some may
    /// be missing.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn list(&self) -> Result<Vec<KeyValue>, Error> {
        let keys: Vec<Vec<u8>> = self.map.keys();
        let row = |key: Vec<u8>| self.get(&key).map(|value| value.map(|value| (key, value)));
        keys.into_iter().filter_map(|key| row(key).transpose()).collect()
    }

    fn check(&self, what: &str, bytes: &[u8], len: u32) -> Result<(), Error> {
        if bytes.len() == len as usize {
            return Ok(());
        }
        let reason = format!("{what} of {} bytes, expected {len}", bytes.len());
        Err(Error::row(&self.name, reason))
    }
}
