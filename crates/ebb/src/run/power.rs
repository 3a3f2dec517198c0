//! What this machine draws, part by part: as the configuration's `profile` does, with the drives
//! and core groups that are here.

use ebb_policy::{PowerModel, RequestWork, Topology};
use ebb_twin::Profile;

/// The model of a machine with the parts of `here`; `None` where the profile's drives are unknown.
pub fn model(profile: &Profile, here: &Topology) -> Option<PowerModel> {
    let drives = u16::try_from(here.drives.len()).unwrap_or(u16::MAX);
    let model = profile.power_with(drives)?;
    let its = profile.topology();
    let of_role = |role| {
        let mut groups = its.groups.iter().zip(&model.work);
        groups.find(|(spec, _)| spec.role == role).map(|(_, work)| *work)
    };
    // Where one group does everything, a request costs it all of its cycles.
    let all = its.io_groups().filter_map(|group| model.work.get(group)).fold(
        RequestWork::default(),
        |sum, work| RequestWork {
            cycles: sum.cycles + work.cycles,
            per_byte: sum.per_byte + work.per_byte,
            contention: sum.contention + work.contention,
        },
    );
    let alone = here.io_groups().count() == 1;
    let work = |group: usize| match of_role(here.groups[group].role) {
        Some(work) if !alone => work,
        _ if here.serves_io(group) => all,
        _ => RequestWork::default(),
    };
    let work = (0..here.groups.len()).map(work).collect();
    Some(PowerModel { work, ..model })
}
