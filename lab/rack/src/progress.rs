//! Progress on a terminal; nothing in a pipe. Where time is virtual, that is shown beside the
//! real one.

use std::{io::IsTerminal, time::Duration};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// One line that says what is being done.
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A line on standard error, if that is a terminal.
    pub fn new() -> Progress {
        let visible = std::io::stderr().is_terminal();
        let target =
            if visible { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, target);
        if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed:>4} {prefix}{wide_msg}")
        {
            bar.set_style(style);
        }
        if visible {
            bar.enable_steady_tick(Duration::from_millis(120));
        }
        Progress { bar }
    }

    /// What shows a virtual time.
    pub fn clock(&self) -> Clock {
        Clock { bar: self.bar.clone() }
    }

    /// What is being done now.
    pub fn say(&self, text: impl Into<String>) {
        self.bar.set_message(text.into());
    }
}

/// Shows a virtual time beside the real one.
pub struct Clock {
    bar: ProgressBar,
}

impl Clock {
    /// It is this time now.
    pub fn show(&self, time: Duration) {
        self.bar.set_prefix(format!("(virtual {:.1}s) ", time.as_secs_f64()));
    }
}

impl Default for Progress {
    fn default() -> Progress {
        Progress::new()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
