//! What stands between a store and its memcached in a test: `set` commands, which the store itself
//! never says, wait there until they are let through.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex},
};

use super::super::support::PATIENCE;

#[derive(Default)]
struct State {
    is_open: bool,
    /// Whoever sent what waits finds its connection closed.
    cuts: bool,
    /// Commands that have come to it while it was shut.
    came: usize,
    /// Of these, those that were let through.
    went: usize,
}

/// A gate that is shut until it is opened.
pub struct Gate {
    pub port: u16,
    state: Arc<(Mutex<State>, Condvar)>,
}

impl Gate {
    /// One before the server at this port; with `cuts` it closes the connection of what waits.
    pub fn before(server: u16, cuts: bool) -> Gate {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new((Mutex::new(State { cuts, ..State::default() }), Condvar::new()));
        let shared = state.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let to = SocketAddr::from(([127, 0, 0, 1], server));
                let Ok(server) = TcpStream::connect(to) else { continue };
                let (back, forth) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                let state = shared.clone();
                std::thread::spawn(move || pass(client, server, Some(&state)));
                std::thread::spawn(move || pass(back, forth, None));
            }
        });
        Gate { port, state }
    }

    /// Waits until a command has come to it.
    pub fn has_one(&self) {
        self.wait(|state| state.came > 0, "nothing has come to the gate");
    }

    /// Lets through what waits, and all that comes.
    pub fn open(&self) {
        self.state.0.lock().unwrap().is_open = true;
        self.state.1.notify_all();
        self.wait(|state| state.went == state.came, "not everything has gone through");
    }

    fn wait(&self, until: impl Fn(&State) -> bool, why: &str) {
        let state = self.state.0.lock().unwrap();
        let waited = self.state.1.wait_timeout_while(state, PATIENCE, |state| !until(state));
        assert!(!waited.unwrap().1.timed_out(), "{why}");
    }
}

/// Passes bytes on; where there is a gate what sets waits at it.
fn pass(mut from: TcpStream, mut to: TcpStream, gate: Option<&(Mutex<State>, Condvar)>) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(len @ 1..) = from.read(&mut bytes) {
        let bytes = &bytes[..len];
        let waits = gate.filter(|_| bytes.starts_with(b"set "));
        let mut counted = None;
        if let Some((state, changes)) = waits {
            let mut state = state.lock().unwrap();
            if !state.is_open {
                state.came += 1;
                if state.cuts {
                    let _ = from.shutdown(Shutdown::Both);
                }
                changes.notify_all();
                drop(changes.wait_while(state, |state| !state.is_open).unwrap());
                counted = waits;
            }
        }
        let passed = to.write_all(bytes);
        if let Some((state, changes)) = counted {
            state.lock().unwrap().went += 1;
            changes.notify_all();
        }
        if passed.is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
