//! Switches that are gone for good.

use decide::SwitchId;

use super::conflict;
use crate::{
    admin::{Refusal, RefusalKind},
    server::views::View,
};

/// Whether a switch may be forgotten; its name. See [`crate::admin::Admin::forget_switch`].
///
/// # Errors
/// As there.
pub fn may_forget(view: &View<'_>, id: SwitchId) -> Result<String, Refusal> {
    let switch = view.around.switches.get(id).ok_or_else(|| {
        let line = format!("there is no switch {id}");
        Refusal::new(RefusalKind::NotFound, line)
    })?;
    let name = switch.known().name.clone();
    if switch.is_attached() {
        return Err(conflict(format!(
            "switch {id} ({name}) is attached: stop its agent first, or it would be back at once"
        )));
    }
    Ok(name)
}
